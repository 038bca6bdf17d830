"""The Optuna dashboard of a study, with our figures and our answer on it."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import optuna
from optuna_dashboard import save_note, save_plotly_graph_object, wsgi

from resnas.errors import InputError
from resnas.search.opening import existing_study
from resnas.study import Study

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LOOPBACK = "127.0.0.1"
DRAWN_PX = 450
"""Least height of a figure on the dashboard."""
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def publish(study: Study, optuna_study: optuna.Study, figures: Mapping[str, Figure], note: str) -> None:
    """Put figures (by a lasting id, a valid HTML id) and a Markdown note on the dashboard; doing so again updates them.

    The figures themselves are left as they are.
    """
    for name, figure in figures.items():
        shown = type(figure)(figure)
        shown.update_layout(
            title={"text": name.replace("-", " "), "x": 0.02, "y": 0.98, "yanchor": "top"},
            margin={"l": 60, "r": 20, "t": 120, "b": 60},
            height=max(DRAWN_PX, shown.layout.height or 0),
        )
        save_plotly_graph_object(optuna_study, shown, graph_object_id=name)
    save_note(optuna_study, note)


def serve(
    study: Study,
    host: str = LOOPBACK,
    port: int = 8080,
    on_ready: Callable[[str], None] = print,
    on_warning: Callable[[str], None] = lambda sentence: print(sentence, file=sys.stderr),
) -> None:
    """Serve the dashboard until interrupted.

    Args:
        study: one that was started before.
        host: address to listen on.
        port: 0 is any free port.
        on_ready: called with the dashboard's address once it answers.
        on_warning: called with a sentence where others can reach the dashboard.

    Raises:
        InputError: there is no such study, or the address cannot be used.
    """
    with open_server(study, host, port) as server:
        if (warning := exposure_warning(host, server.server_port)) is not None:
            on_warning(warning)
        on_ready(address(study, host, server.server_port))
        server.serve_forever()


def open_server(study: Study, host: str = LOOPBACK, port: int = 8080) -> WSGIServer:
    """Return a server that listens already; `serve_forever` answers requests. Raises as `serve`."""
    storage = existing_study(study)._storage
    application: Application = wsgi(storage)
    if is_loopback(host):
        application = _only_from_here(application)
    try:
        return make_server(host, port, application, _server_class(host), _QuietHandler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} on {host} is in use, perhaps by another dashboard; choose another (--port {port + 1}), "
                "or any free one (--port 0)"
            ) from error
        raise InputError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
    except OverflowError as error:
        raise InputError(f"port must be a whole number from 0 to 65535, not {port}") from error


def address(study: Study, host: str, port: int) -> str:
    """Return the address of the study's page."""
    optuna_study = existing_study(study)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/dashboard/studies/{optuna_study._study_id}"


def exposure_warning(host: str, port: int) -> str | None:
    """Return a warning where others can reach the dashboard; None on loopback."""
    if is_loopback(host):
        return None
    return (
        f"warning: optuna-dashboard has no authentication: whoever reaches {host}:{port} can read, change and delete "
        f"the study. Safer: leave out --host, and on your own machine run  ssh -N -L {port}:{LOOPBACK}:{port} "
        "USER@THIS_MACHINE"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _only_from_here(application: Application) -> Application:
    """Refuse requests that name another host: a web page elsewhere must not reach it through the user's browser."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        origin = environ.get("HTTP_ORIGIN", "").rpartition("//")[2]
        named = [environ.get("HTTP_HOST", ""), *([origin] if origin else [])]
        if all(is_loopback(name.rsplit(":", 1)[0].strip("[]")) for name in named):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"This dashboard answers only to the address of the machine it runs on.\n"]

    return guarded


class _Server(ThreadingMixIn, WSGIServer):
    """One thread per request: a browser keeps connections open."""

    daemon_threads = True


class _Server6(_Server):
    """The same for IPv6."""

    address_family = socket.AF_INET6


def _server_class(host: str) -> type[WSGIServer]:
    return _Server6 if ":" in host else _Server


class _QuietHandler(WSGIRequestHandler):
    """Keeps requests out of the terminal."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
