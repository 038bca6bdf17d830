"""A real PostgreSQL server for the tests, with a password, in a folder of its own."""

import contextlib
import glob
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

PASSWORD = "sw0rdf1sh-" + secrets.token_hex(4)


def missing() -> str:
    """Return what is missing for a server; empty where nothing is."""
    if _program("initdb") is None:
        return "PostgreSQL (initdb)"
    return "" if importlib.util.find_spec("psycopg") else "psycopg (pip install 'resnas[postgres]')"


def _program(name: str) -> str | None:
    """Debian keeps the server's programs off the path."""
    return shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None)


class Server:
    """A server on a free port of this machine."""

    def __init__(self) -> None:
        # PostgreSQL refuses to run as root, and another user must be able to enter the folder
        self._user = {"user": "postgres"} if os.getuid() == 0 else {}
        self.folder = Path(tempfile.mkdtemp(prefix="resnas-postgres-"))
        if self._user:
            shutil.chown(self.folder, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run("initdb", "-U", "tester", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [_program(program), "-D", self.folder / "data", *arguments]
        log = self.folder / f"{program}.log"
        # a file, not a pipe: the server would keep the pipe open
        with log.open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=output, cwd="/", timeout=60, **self._user)
        assert done.returncode == 0, log.read_text()

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        self._run("pg_ctl", "-w", "-o", options, "-l", str(self.folder / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def remove(self) -> None:
        with contextlib.suppress(AssertionError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", driver: str = "") -> str:
        return f"postgresql{driver}://tester:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple]:
        import psycopg

        plain = self.url(database)
        with psycopg.connect(plain, autocommit=True) as connection:
            answer = connection.execute(statement)
            return answer.fetchall() if answer.description else []

    def cut(self, key: int, database: str) -> None:
        """End the connection that holds an advisory lock, as a lost network would."""
        held = f"(classid::bigint << 32 | objid::bigint) = {key} AND locktype = 'advisory' AND granted"
        ended = self.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE {held}", database)
        assert ended == [(True,)]

    def new_database(self) -> str:
        """Return the name of an empty database."""
        name = "test_" + secrets.token_hex(4)
        self.execute(f"CREATE DATABASE {name}")
        return name


class Wire:
    """A way to a server on which the answer to the next COMMIT is lost: the client cannot know what became of it."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_next = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                threading.Thread(target=self._back, args=(server, client), daemon=True).start()
                threading.Thread(target=self._forth, args=(client, server), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.cut_next and b"COMMIT" in data:
                    self.cut_next = False
                    client.shutdown(socket.SHUT_RDWR)
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    @staticmethod
    def _back(server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        server.close()
        client.close()

    def close(self) -> None:
        self._listener.close()
