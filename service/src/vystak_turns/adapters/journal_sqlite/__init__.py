"""The journal in one SQLite file: see `journal.SqliteJournal`."""
