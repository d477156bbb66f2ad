"""What every engine must do, held against transformers and PEFT: each engine passes the same tests."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flywheel.base_model import load_tokenizer, resolve_folder
from flywheel.chat import prompt_ids
from flywheel.config import EngineConfig
from flywheel.engines import CompletionRequest, Engine, Watch, open_engine
from flywheel.errors import Cancelled, ContextExceeded, DataError, InputError
from flywheel.records import Message
from flywheel.workspace import read_card
from serve.llamacpp_engine import LlamaCppEngine
from serve.openai_engine import OpenAIEngine
from serve.roster import Roster
from serve.vllm_engine import VllmEngine

from .adapters import ROLES, make_adapter, reference_logprobs, reference_text, request
from .gguf_models import write_gguf
from .real_vllm import install_vllm
from .servers import running_gateway

CANARIES = ("Where is the Eiffel Tower?", "Name a river of Hungary, and say how long it is.")
TOLERANCE = 0.02
"""Of logprobs; llama.cpp keeps keys and values in float16."""


@dataclass
class Served:
    """An engine with three adapters."""

    engine: Engine
    base: Path
    adapters: dict[str, Path]
    spare: Path
    """A second version of the supervisor's adapter, not loaded."""


@pytest.fixture(
    scope="module",
    params=[
        "transformers-qwen2", "transformers-llama", "llamacpp-qwen2", "llamacpp-llama", "gateway-qwen2",
        pytest.param("vllm-embedded", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Every engine, for both families of models."""
    kind, _, family = request.param.partition("-")
    base = resolve_folder("embedded") if family == "embedded" else request.getfixturevalue(family)
    folder = tmp_path_factory.mktemp("conformance")
    adapters = {f"{role}@1": make_adapter(folder, base, role, 1, seed) for seed, role in enumerate(ROLES)}
    spare = make_adapter(folder, base, "supervisor", 2, 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_CACHE", str(folder / "cache"))
        settings = EngineConfig(model=str(base), context=256, batch=8, dtype="float32", threads=1)
        if kind == "llamacpp":
            gguf = write_gguf(base, folder / "base.gguf")
            settings = settings.model_copy(update={"kind": kind, "model": str(gguf), "original": str(base)})
        if kind == "vllm":
            patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
            command, arguments = install_vllm(folder / "vllm"), ("--enforce-eager",)
            settings = settings.model_copy(update={"kind": kind, "vllm": command, "vllm_arguments": arguments})
        engine = open_engine(settings, adapters)
        if kind == "gateway":
            with _gateway(engine, adapters) as client:
                yield Served(client, base, adapters, spare)
        else:
            yield Served(engine, base, adapters, spare)
        engine.close()


def test_each_role_is_as_likely_to_say_a_token_as_in_peft(served: Served) -> None:
    """Also unlike the base, which is the same before and after."""
    for canary in CANARIES:
        plain = reference_logprobs(served.base, None, request(canary))
        for name, folder in [("base", None), *served.adapters.items(), ("base", None)]:
            asked = request(canary, name, logprobs=5)
            completion = served.engine.complete(asked)
            assert completion.model == name
            expected = reference_logprobs(served.base, folder, asked)
            first = completion.logprobs[0]
            assert len(first.top) == 5
            for token, logprob in ((first.token, first.logprob), *first.top):
                assert _off(logprob, expected[token]) < TOLERANCE
            if folder:
                assert any(_off(logprob, plain[token]) > 10 * TOLERANCE for token, logprob in first.top)


def test_each_role_says_what_it_says_in_peft(served: Served) -> None:
    for name, folder in [("base", None), *served.adapters.items()]:
        asked = request(CANARIES[0], name)
        assert _whole(served.engine.complete(asked).text) == _whole(reference_text(served.base, folder, asked))


def test_a_bare_role_is_its_newest_version(served: Served) -> None:
    asked = request(CANARIES[0], "page_search")
    completion = served.engine.complete(asked)
    assert completion.text == served.engine.complete(asked.model_copy(update={"model": "page_search@1"})).text
    assert completion.model == "page_search@1"
    assert set(served.engine.models()) >= {"base", *ROLES, *served.adapters}
    with pytest.raises(InputError, match="supervisor@9"):
        served.engine.complete(request("Hello", "supervisor@9"))


def test_no_adapter_meets_anothers_cache(served: Served) -> None:
    """The same long conversation, over and over, under every name in turn, with and without a session."""
    text = "Tell me about rivers. " * 6
    alone = {name: reference_logprobs(served.base, folder, request(text)) for name, folder in _names(served, base=True)}
    for session in ("", "one", "one", ""):
        for name in (*alone, *reversed(alone)):
            first = served.engine.complete(request(text, name, session=session, logprobs=3)).logprobs[0]
            for token, logprob in first.top:
                assert _off(logprob, alone[name][token]) < TOLERANCE, (name, session)


def test_a_conversation_that_goes_on_is_answered_as_a_new_one(served: Served) -> None:
    first = request("Tell me about the Rhine.", "wiki_search@1", session="talk")
    said = served.engine.complete(first).text
    messages = (*first.messages, Message(role="assistant", content=said), Message(role="user", content="And then?"))
    second = first.model_copy(update={"messages": messages})
    assert _whole(served.engine.complete(second).text) == _whole(
        reference_text(served.base, served.adapters["wiki_search@1"], second)
    )


def test_each_role_keeps_its_prefix(served: Served) -> None:
    """The system prompt of a role is read once, whoever is asked in between, and never taken from another role."""
    if isinstance(served.engine, VllmEngine):
        pytest.skip("vLLM keeps whole blocks, which are longer than this prompt")
    system = Message(role="system", content="Be brief, be kind, and name your sources. " * 4)
    names = ("base", *served.adapters)
    for place, text in enumerate(("How long is the Rhine?", "Who wrote Faust?")):
        for name in names:
            asked = request(text, name, max_tokens=2).model_copy(
                update={"messages": (system, Message(role="user", content=text))}
            )
            cached = served.engine.complete(asked).cached_tokens
            assert cached < 16 if not place else cached > 30, (name, text, cached)


def test_the_same_request_twice_is_answered_the_same(served: Served) -> None:
    asked = request("Say it again.", "supervisor", logprobs=0)
    first, second = served.engine.complete(asked), served.engine.complete(asked)
    assert first.text == second.text
    assert [one.logprob for one in first.logprobs] == pytest.approx([one.logprob for one in second.logprobs], abs=1e-3)
    assert first.logprobs and all(one.top == () for one in first.logprobs)


def test_sampling_depends_on_the_seed(served: Served) -> None:
    texts = [
        served.engine.complete(request("Dice?", temperature=1.5, seed=seed, max_tokens=10)).text
        for seed in (1, 2, 1, 2**32 - 1, 2**32 - 1, -1, -1)
    ]
    assert texts[0] == texts[2] != texts[1]
    assert texts[3] == texts[4] and texts[5] == texts[6]


def test_stop_texts(served: Served) -> None:
    whole = served.engine.complete(request("Say something.")).text
    stop = re.findall(r"[ -~]{3}", whole[2:])[0]  # half of a character would not be the same text for all engines
    pieces: list[str] = []
    completion = served.engine.complete(request("Say something.", stop=(stop, "never said")), Watch(pieces.append))
    assert completion.text == whole[: whole.find(stop)] == "".join(pieces)
    assert completion.finish_reason == "stop"


def test_a_long_stop_text_is_found_too(served: Served) -> None:
    whole = served.engine.complete(request("Say something long.", max_tokens=80)).text
    readable = sorted(re.findall(r"[ -~]+", whole[4:]), key=len)[-1]  # half of a character is not one text for all
    stop = readable if isinstance(served.engine, LlamaCppEngine) else whole[4:60]
    pieces: list[str] = []
    asked = request("Say something long.", max_tokens=80, stop=(stop,))
    completion = served.engine.complete(asked, Watch(pieces.append))
    assert completion.text == whole[: whole.find(stop)] == "".join(pieces)
    assert completion.finish_reason == "stop"


def test_a_tiny_temperature_takes_the_likeliest(served: Served) -> None:
    for temperature in (1e-45, 1e-38, 1e-5):
        asked = request("Say something.", temperature=temperature)
        assert served.engine.complete(asked).text == served.engine.complete(request("Say something.")).text


def test_pieces_make_up_the_whole(served: Served) -> None:
    pieces: list[str] = []
    asked = request("Tell a story.", "supervisor", max_tokens=40, temperature=0.9, seed=3)
    completion = served.engine.complete(asked, Watch(pieces.append))
    assert "".join(pieces) == completion.text == served.engine.complete(asked).text
    assert len(pieces) > 3


def test_counts_and_limits(served: Served) -> None:
    asked = request("Count.", max_tokens=3)
    completion = served.engine.complete(asked)
    assert (completion.finish_reason, completion.completion_tokens) == ("length", 3)
    assert completion.prompt_tokens == len(prompt_ids(load_tokenizer(served.base), asked.messages))
    with pytest.raises(ContextExceeded):
        served.engine.complete(request("long " * 400))


def test_a_text_is_gone_on_from_as_it_stands(served: Served) -> None:
    asked = request("Hello", max_tokens=6)
    rendered = load_tokenizer(served.base).apply_chat_template(
        [message.model_dump() for message in asked.messages], tokenize=False, add_generation_prompt=True
    )
    plain = asked.model_copy(update={"messages": (), "prompt": rendered})
    assert served.engine.complete(plain).text == served.engine.complete(asked).text


def test_a_request_that_nobody_wants_any_more_is_dropped(served: Served) -> None:
    watch = Watch(lambda piece: threading.Thread(target=watch.cancel).start())
    with pytest.raises(Cancelled):
        served.engine.complete(request("Go on.", max_tokens=200, temperature=1.0, stop=("<|im_end|>",)), watch)
    assert served.engine.complete(request("Still there?")).text


def test_three_roles_and_eight_clients_get_what_one_client_gets(served: Served) -> None:
    """200 requests, 8 at once, of all roles and the base; sessions and lengths mixed."""
    asked = [
        request(f"Question {number % 25} " + "about rivers " * (number % 7), name, session=f"run {number % 11}")
        for number in range(50)
        for name in ("base", *served.adapters)
    ]
    alone = {one.model_copy(update={"session": ""}): "" for one in asked}
    alone = {one: served.engine.complete(one).text for one in alone}
    with ThreadPoolExecutor(8) as pool:
        together = [completion.text for completion in pool.map(served.engine.complete, asked)]
    for one, text in zip(asked, together, strict=True):
        _assert_same(served.engine, one.model_copy(update={"session": ""}), text, alone)


def test_adapters_are_changed_while_requests_run(served: Served) -> None:
    """A new version is there at once, what runs is finished by what it began with, the old version is gone after."""
    if isinstance(served.engine, OpenAIEngine):
        pytest.skip("a client cannot load adapters; the gateway's reload has a test of its own")
    old = request("Tell a long story.", "supervisor", max_tokens=150)
    expected = served.engine.complete(old).text
    begun = [threading.Event() for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(served.engine.complete, old, Watch(lambda piece, event=event: event.set())) for event in begun
        ]
        assert all(event.wait(20) for event in begun)
        served.engine.load({**served.adapters, "supervisor@2": served.spare})
        new = served.engine.complete(request(CANARIES[0], "supervisor"))
        for one in running:  # to the letter only as far as sums in another order do not tip a balance
            assert one.result().model == "supervisor@1"
            assert one.result().text[:60] == expected[:60]
    assert new.model == "supervisor@2"
    assert _whole(new.text) == _whole(reference_text(served.base, served.spare, request(CANARIES[0])))
    asked = request(CANARIES[1], "wiki_search")
    assert _whole(served.engine.complete(asked).text) == _whole(
        reference_text(served.base, served.adapters["wiki_search@1"], asked)
    )
    served.engine.load(served.adapters)
    with pytest.raises(InputError, match="supervisor@2"):
        served.engine.complete(request("Hello", "supervisor@2"))
    with pytest.raises(DataError, match="cannot read"):
        served.engine.load({"supervisor@3": served.base})
    assert served.engine.complete(old).text[:60] == expected[:60]


@contextmanager
def _gateway(engine: Engine, adapters: dict[str, Path]) -> Iterator[Engine]:
    """Our own client of our own gateway over an engine."""
    roster = Roster(engine, cards={name: read_card(path) for name, path in adapters.items()})
    with running_gateway(roster) as url:
        client = OpenAIEngine(url, "", timeout=60, model="base")
        client.refresh_models()
        yield client
        client.close()


def _assert_same(engine: Engine, asked: CompletionRequest, text: str, expected: dict[CompletionRequest, str]) -> None:
    """The same text, or another from a place on where two tokens are as good as equally likely.

    Sums in another order, as of requests that are computed together, may tip the balance there.
    """
    if text == expected[asked]:
        return
    same = next((n for n, (a, b) in enumerate(zip(text, expected[asked], strict=False)) if a != b), len(text))
    seen, gaps = "", []
    for token in engine.complete(asked.model_copy(update={"logprobs": 2})).logprobs:
        gaps.append(abs(token.top[0][1] - token.top[1][1]))
        seen += token.token
        if len(seen) > same + 2:
            break
    assert min(gaps[-4:]) < TOLERANCE, (text, expected[asked], gaps)


def _whole(text: str) -> str:
    """Without half of a character at the end, which llama.cpp leaves out."""
    return text.rstrip("\ufffd")


def _off(logprob: float, expected: list[float]) -> float:
    return min(abs(logprob - value) for value in expected)


def _names(served: Served, base: bool) -> list[tuple[str, Path | None]]:
    return [*([("base", None)] if base else []), *served.adapters.items()]
