#!/bin/sh
# Makes what compose.yaml needs to be secret, once: .secrets/ at the top, which git ignores.
# A container's user is not yours, so the files can be read by everyone who can enter their folder,
# and only you can.
set -eu
cd "$(dirname "$0")/.."
umask 077
mkdir -p .secrets
word() { # a letter first: nats-server reads 12e3 as a number
    printf 'p%s' "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')"
}
make_file() { # NAME TEXT
    [ -s ".secrets/$1" ] && return
    printf '%s\n' "$2" > ".secrets/$1.new"
    chmod 644 ".secrets/$1.new"
    mv ".secrets/$1.new" ".secrets/$1"
}
make_file turns.creds "turns:$(word)"
make_file panel.creds "panel:$(word)"
make_file panel.token "$(word)"
