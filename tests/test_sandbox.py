"""Model-written code against the sandbox: each hostile action is refused or stopped, and the next step works."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from collect.sandbox import CodeStopped, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One pool of workers for all tests here."""
    pool = Sandbox(sessions=4)
    yield pool
    pool.close()


def tool(query: str = "") -> str:
    """What a role can call."""
    return f"about {query}"


REFUSED = {
    "read a file": ("open('/etc/passwd').read()", "PermissionError"),
    "write a file": ("open('/tmp/x', 'w').write('x')", "PermissionError"),
    "read through pathlib": ("import pathlib\npathlib.Path('/etc/passwd').read_text()", "PermissionError"),
    "list a folder": ("import os\nos.listdir('/')", "PermissionError"),
    "read in a callback": ("sorted([3, 1], key=lambda x: open('/etc/passwd'))", "NotImplementedError"),
    "environment": ("import os\nos.environ['PATH']", "not supported"),
    "getenv": ("import os\nos.getenv('PATH')", r"\w"),
    "shell": ("import os\nos.system('true')", "AttributeError"),
    "subprocess": ("import subprocess\nsubprocess.run(['true'])", "ModuleNotFoundError"),
    "fork": ("import os\nos.fork()", "AttributeError"),
    "kill": ("import os\nos.kill(1, 9)", "AttributeError"),
    "signals": ("import signal", "ModuleNotFoundError"),
    "socket": ("import socket\nsocket.socket()", "ModuleNotFoundError"),
    "urllib": ("import urllib.request", "ModuleNotFoundError"),
    "requests": ("import requests", "ModuleNotFoundError"),
    "threads": ("import threading", "ModuleNotFoundError"),
    "ctypes": ("import ctypes", "ModuleNotFoundError"),
    "importlib": ("import importlib", "ModuleNotFoundError"),
    "dunder import": ("__import__('os').system('true')", "NameError"),
    "builtins": ("__builtins__['__import__']('os')", "NameError"),
    "exit": ("exit()", "NameError"),
    "sys.exit": ("import sys\nsys.exit(3)", "AttributeError"),
    "sys.modules": ("import sys\nsys.modules['os']", "AttributeError"),
    "breakpoint": ("breakpoint()", "NameError"),
    "input": ("input()", "NameError"),
    "garbage collector": ("import gc\ngc.get_objects()", "ModuleNotFoundError"),
    # ways out of smolagents' own interpreter that were published
    "subclasses": ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
    "mro": ("''.__class__.__mro__[1].__subclasses__()", "AttributeError"),
    "getattr by parts": ("getattr((), '__cla' + 'ss__')", "AttributeError"),
    "globals of a lambda": ("(lambda: 0).__globals__", "AttributeError"),
    "code of a lambda": ("(lambda: 0).__code__", "AttributeError"),
    "globals of a tool": ("tool.__globals__['os']", "AttributeError"),
    "self of a tool": ("tool.__self__", "AttributeError"),
    "globals of final_answer": ("final_answer.__globals__", "AttributeError"),
    "frame of an exception": ("try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame", "AttributeError"),
    "format string": ("'{0.__class__.__init__.__globals__}'.format(tool)", "AttributeError"),
    "compile": ("compile('1', '', 'eval')", "NameError"),
    "open inside eval": ("eval(\"open('/etc/passwd')\")", "PermissionError"),
    "open inside exec": ("exec(\"open('/etc/passwd')\")", "PermissionError"),
    "recursion": ("def f(): return f()\nf()", "RecursionError"),
    "deep json": ("import json\njson.loads('[' * 10**6)", "recursion"),
}

STOPPED = {
    "endless loop": ("while True: pass", "TimeoutError.*Do less in one step"),
    "long sum": ("sum(range(10**12))", "TimeoutError"),
    "long string": ("'a' * 10**10", "MemoryError.*Work with less data"),
    "long list": ("[0] * 10**10", "MemoryError"),
    "growing list": ("x = [1]\nwhile True: x = x + x", "MemoryError.*all variables are lost"),
    "big number": ("2 ** 10**9", "MemoryError"),
    "bigger number": ("10 ** 10 ** 8", "TimeoutError"),
    "huge print": ("print('x' * 10**7)", "MemoryError.*Print less"),
    "endless print": ("while True: print('x' * 1000)", "(?s)MemoryError.*Print less|TimeoutError"),
}


def _attack(sandbox: Sandbox, code: str, reason: str, kind: type[Exception]) -> None:
    with sandbox.executor() as executor:
        executor.send_tools({"tool": tool})
        started = time.monotonic()
        with pytest.raises(kind, match=reason):
            executor(code)
        assert time.monotonic() - started < 60
        assert executor("print(tool('x'))\n1 + 1").output == 2
        assert executor.state["_print_outputs"] == "about x\n"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_forbidden_is_refused(sandbox: Sandbox, name: str) -> None:
    _attack(sandbox, *REFUSED[name], Exception)


@pytest.mark.parametrize("name", STOPPED)
def test_what_takes_too_much_is_stopped(sandbox: Sandbox, name: str) -> None:
    _attack(sandbox, *STOPPED[name], CodeStopped)


def test_sleeping_takes_no_time(sandbox: Sandbox) -> None:
    with sandbox.executor() as executor:
        executor.send_tools({})
        assert executor("import time\ntime.sleep(100000)\n'awake'").output == "awake"


def _workers() -> set[int]:
    found = psutil.Process().children(recursive=True)
    return {process.pid for process in found if process.is_running() and "monty" in process.name()}


def test_a_worker_that_dies_harms_nobody(sandbox: Sandbox) -> None:
    """The worker is killed while its code runs; other sessions do not notice, and the same agent goes on."""
    with sandbox.executor() as other:
        other.send_tools({})
        other("kept = 7")
        before = _workers()
        pool = Sandbox(sessions=1)
        with pool.executor() as victim:
            victim.send_tools({"shoot": lambda: [psutil.Process(pid).kill() for pid in _workers() - before] and "shot"})
            with pytest.raises(CodeStopped, match="crashed; all variables are lost"):
                victim("x = 1\nshoot()\nshoot()")
            assert victim("'alive'").output == "alive"
        assert other("kept").output == 7
        pool.close()
    assert _workers() <= before


def test_final_answer_counts_although_the_code_catches_everything(sandbox: Sandbox) -> None:
    with sandbox.executor() as executor:
        output = executor("try:\n    final_answer(answer=3)\nexcept Exception:\n    print('caught')")
        assert (output.output, output.is_final_answer) == (3, True)


def test_final_answer_is_not_what_the_code_calls_so(sandbox: Sandbox) -> None:
    with sandbox.executor() as executor:
        executor.send_tools({})
        output = executor("def final_answer(x): return x\nfinal_answer(3)")
        assert (output.output, output.is_final_answer) == (3, False)


def test_nested_sessions_do_not_wait_for_each_other_for_ever() -> None:
    """As many rollouts as the pool is made for, each holding sessions three deep."""
    rollouts, depth = 6, 3
    pool = Sandbox(sessions=rollouts * depth)

    def nest(level: int) -> Any:
        with pool.executor() as executor:
            executor.send_tools({"deeper": lambda: nest(level - 1) if level else 0})
            return executor("1 + deeper()").output

    try:
        with ThreadPoolExecutor(rollouts) as threads:
            assert list(threads.map(lambda _: nest(depth - 1), range(30))) == [depth] * 30
    finally:
        pool.close()
