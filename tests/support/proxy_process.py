"""The process of a `FaultProxy`: an HTTP/1.1 reverse proxy on one event loop, told what to do through a socket.

A request is read whole, counted, given its fault, and passed on as it came, Host header included: the signature covers
that. An answer without a fault streams through; one with a fault is collected and then played back, wrong.
"""

from __future__ import annotations

import asyncio
import fcntl
import pickle
import socket
import struct
import sys
import termios
from http import HTTPStatus
from typing import Any

from tests.support.faults import Ledger, Request
from tests.support.messages import (
    Answer,
    length_of_body,
    read_headers,
    read_request,
    spoil,
    whole_body,
    without_condition,
)


class Proxy(Ledger):
    """State shared by all connections; used on the event loop only, hence without locks.

    What `FaultProxy` asks for comes through the control socket and is called here by name.
    """

    def __init__(self, host: str, port: int, control: asyncio.StreamWriter) -> None:
        super().__init__()
        self.address = (host, port)
        self.idle: list[Upstream] = []
        self.released = asyncio.Event()
        self._control = control
        self._calling_back: dict[int, asyncio.Future[bool]] = {}

    def clear(self) -> None:
        super().clear()
        self._free_the_hung()

    def release(self) -> None:
        super().release()
        self._free_the_hung()

    def _free_the_hung(self) -> None:
        self.released.set()
        self.released = asyncio.Event()

    def called_back(self, token: int, well: bool) -> None:
        """The test has done what it wanted to do before a request."""
        self._calling_back.pop(token).set_result(well)

    async def call_back(self, callback: int, request: Request) -> bool:
        """Have the test's process do something before the request goes on; whether that went well."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        token = id(done)
        self._calling_back[token] = done
        send(self._control, "call", (callback, token, request))
        return await done


class Upstream(asyncio.Protocol):
    """A connection to the server; kept for other requests as long as both sides like."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.exchange: Exchange | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.exchange is None:
            self.transport.abort()  # nobody asked: cannot be trusted with another request
        else:
            self.exchange.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.proxy.idle:
            self.proxy.idle.remove(self)
        if self.exchange is not None:
            self.exchange.server_gone()


class Client(asyncio.Protocol):
    """A connection from a client: one exchange after the other."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.transport: asyncio.Transport
        self._buffer = b""
        self._exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._exchange is None:
            self._next_exchange()

    def _next_exchange(self) -> None:
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        head = self._buffer[:end]
        headers = read_headers(head)
        end += int(headers.get(b"content-length", 0))
        if headers.get(b"expect") and len(self._buffer) == len(head):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._buffer) >= end:
            message, self._buffer = self._buffer[:end], self._buffer[end:]
            self._exchange = Exchange(self, message, read_request(head, headers))
            self._exchange.start()

    def pause_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.client_gone()

    def exchange_done(self) -> None:
        self._exchange = None
        self._next_exchange()


class Exchange:
    """One request and its answer."""

    def __init__(self, client: Client, message: bytes, request: Request) -> None:
        self._client = client
        self._proxy = client.proxy
        self._message = message
        self._request = request
        self._fault = self._proxy.decide(request)
        self._upstream: Upstream | None = None
        self._reused = False
        self._received = bytearray()  # of the answer, until it can be passed on
        self._missing: int | None = None  # of a body that streams through; None: collecting the answer or its head
        self._task: asyncio.Task[None] | None = None
        self._open = True

    def start(self) -> None:
        fault = self._fault
        if fault.latency or fault.callback is not None or fault.hang or fault.status is not None:
            self._task = asyncio.create_task(self._hold_up())
        else:
            self._forward()

    async def _hold_up(self) -> None:
        """What happens before the server hears of the request."""
        fault = self._fault
        if fault.latency:
            await asyncio.sleep(fault.latency)
        if fault.callback is not None and not await self._proxy.call_back(fault.callback, self._request):
            self._answer_ourselves(500)
            return
        if fault.hang:
            await self._proxy.released.wait()
        if fault.status is not None:
            self._answer_ourselves(fault.status)
        else:
            self._forward()

    def _answer_ourselves(self, status: int) -> None:
        phrase = HTTPStatus(status).phrase
        body = f"<Error><Code>{phrase.replace(' ', '')}</Code><Message>{phrase}</Message></Error>".encode()
        headers = {name.encode(): value.encode() for name, value in self._fault.headers}
        answer = Answer(b"HTTP/1.1 %d %s" % (status, phrase.encode()), headers, len(body), body)
        self._pass_on(answer.head(), 0)
        if self._request.kind != "HEAD":
            self._pass_on(body, len(body))
        self._done()

    # Towards the server.

    def _forward(self) -> None:
        if self._fault.drop_if_match and self._request.if_match is not None:
            self._message = without_condition(self._message)
        if self._proxy.idle:
            self._reused = True
            self._send(self._proxy.idle.pop())
        else:
            self._task = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, upstream = await loop.create_connection(lambda: Upstream(self._proxy), *self._proxy.address)
        except OSError:
            self._answer_ourselves(502)
            return
        self._reused = False
        self._send(upstream)

    def _send(self, upstream: Upstream) -> None:
        self._upstream = upstream
        upstream.exchange = self
        upstream.transport.write(self._message)

    # From the server.

    def received(self, data: bytes) -> None:
        if self._missing is None:
            self._received += data
            self._look_at_answer(ended=False)
        else:
            self._stream(data, len(data))

    def server_gone(self) -> None:
        self._upstream = None
        if self._reused and self._missing is None and not self._received:
            # It closed an idle connection at the moment we used it: not a fault the test asked for.
            self._task = asyncio.create_task(self._connect())
        elif self._missing is not None or not self._look_at_answer(ended=True):
            self._client.transport.abort()

    def _look_at_answer(self, *, ended: bool) -> bool:
        """Start to stream, or play the answer once it is complete; whether one of both has happened."""
        end = self._received.find(b"\r\n\r\n") + 4
        if end < 4:
            return False
        head = bytes(self._received[:end])
        status = int(head[9:12])
        if status == 100:
            del self._received[:end]
            return self._look_at_answer(ended=ended)
        headers = read_headers(head)
        length = 0 if self._request.kind == "HEAD" or status in {204, 304} else length_of_body(headers)
        if length is not None and not self._fault.changes_answer:
            self._missing = length
            self._stream(bytes(self._received), len(self._received) - end)
            return True
        body = whole_body(bytes(self._received[end:]), headers, length, ended=ended)
        if body is None:
            return False
        self._give_back_upstream()
        self._task = asyncio.create_task(self._play(Answer.of(head, headers, body)))
        return True

    def _stream(self, data: bytes, body: int) -> None:
        assert self._missing is not None
        self._missing -= body
        if self._missing == 0:
            self._give_back_upstream()
        self._pass_on(data, body)
        if self._missing == 0:
            self._done()

    def _give_back_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.exchange = None
            self._proxy.idle.append(self._upstream)
            self._upstream = None

    # Towards the client.

    async def _play(self, answer: Answer) -> None:
        """A collected answer, with all that is to be wrong with it."""
        fault = self._fault
        spoil(answer, fault, is_list=self._request.kind == "LIST")
        if fault.breaks is None or fault.break_after is not None:
            self._pass_on(answer.head(), 0)
            stop = len(answer.body) if fault.breaks is None else fault.break_after
            await self._write_body(answer.body[:stop])
        if fault.breaks == "reset":
            await self._reset()
        elif fault.breaks == "close":
            self._client.transport.close()
        else:
            if fault.breaks == "stall":
                await self._proxy.released.wait()
                rest = answer.body[fault.break_after :]
                self._pass_on(rest, len(rest))
            self._done()

    async def _write_body(self, body: bytes) -> None:
        if self._fault.rate is None:
            self._pass_on(body, len(body))
            return
        piece = max(1, int(self._fault.rate / 20))
        for start in range(0, len(body), piece):
            part = body[start : start + piece]
            self._pass_on(part, len(part))
            await asyncio.sleep(len(part) / self._fault.rate)

    async def _reset(self) -> None:
        transport = self._client.transport
        connection = transport.get_extra_info("socket")
        # What is still on its way would be thrown away with the connection.
        for _ in range(1000):
            unsent = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
            if not unsent and not transport.get_write_buffer_size():
                break
            await asyncio.sleep(0.001)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _pass_on(self, data: bytes, body: int) -> None:
        self._proxy.counts.bytes_sent[self._request.kind] += body
        self._client.transport.write(data)

    def pause(self) -> None:
        if self._upstream is not None:
            self._upstream.transport.pause_reading()

    def resume(self) -> None:
        if self._upstream is not None:
            self._upstream.transport.resume_reading()

    def client_gone(self) -> None:
        """The client went away, or we cut it off."""
        if self._task is not None:
            self._task.cancel()
        if self._upstream is not None:
            self._upstream.exchange = None
            self._upstream.transport.abort()
        if self._open:
            self._open = False
            self._proxy.counts.answered()

    def _done(self) -> None:
        self._open = False
        self._proxy.counts.answered()
        self._client.exchange_done()


def send(control: asyncio.StreamWriter, *message: Any) -> None:
    """One message to the test's process; `FaultProxy` reads them."""
    data = pickle.dumps(message)
    control.write(struct.pack("!I", len(data)) + data)


async def main(control_fd: int, host: str, port: int) -> None:
    """Serve until the other end of the control socket is closed."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=control_fd))
    proxy = Proxy(host, port, writer)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Client(proxy), "127.0.0.1", 0, backlog=1024)
    send(writer, "reply", listener.sockets[0].getsockname()[1])
    while header := await reader.read(4):
        name, args = pickle.loads(await reader.readexactly(*struct.unpack("!I", header)))
        result = getattr(proxy, name)(*args)
        if name != "called_back":  # a message, not a question
            send(writer, "reply", result)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
