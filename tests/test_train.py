"""Token rows, prefix trees, and training on a tiny model."""

import inspect
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from trl.trainer.sft_config import SFTConfig

from flywheel.base_model import load_model, load_tokenizer, resolve_folder
from flywheel.chat import encode, end_of_turn, prompt_ids
from flywheel.cli import flywheel
from flywheel.config import SelectConfig, TrainConfig
from flywheel.errors import DataError, InfrastructureError, InputError
from flywheel.files import sha256
from flywheel.records import Rollout
from flywheel.store import RolloutFilter, TraceStore
from flywheel.workspace import Workspace, read_card
from train.dataset import read_examples, write_datasets
from train.optimiser import MasterAdamW
from train.rows import Row, tokenise, usable
from train.select import select
from train.sft import Task, named_failures
from train.trainer import TreeTrainer, plan_batches
from train.tree import Tree

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_rows_hold_exactly_the_served_tokens(
    traces: list[Rollout], family: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = load_tokenizer(request.getfixturevalue(family))
    ending = end_of_turn(tokenizer)
    assert ending == "<|im_end|>"
    calls = {call.id: call for rollout in traces for run in rollout.runs for call in run.calls}
    for example in [row for rows in select(traces, SelectConfig()).examples.values() for row in rows]:
        row, call = tokenise(tokenizer, example), calls[example.call]
        assert row.prompt == prompt_ids(tokenizer, call.messages)
        assert row.completion == encode(tokenizer, call.completion + ending)
        assert tokenizer.decode(row.completion) == call.completion + ending


def test_long_rows_are_left_out_and_never_cut(traces: list[Rollout], qwen2: Path) -> None:
    tokenizer = load_tokenizer(qwen2)
    rows = [tokenise(tokenizer, example) for example in select(traces, SelectConfig()).examples["supervisor"]]
    longest = max(map(len, rows))
    fitting, too_long = usable(rows, longest - 1)
    assert too_long >= 1
    assert len(fitting) + too_long == len(rows)
    assert all(row in rows for row in fitting)


TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6)
ROWS = st.lists(
    st.builds(Row, prompt=TOKENS, completion=TOKENS, weight=st.sampled_from([0.5, 1.0, 2.0]), run=st.just("r")),
    min_size=1, max_size=6,
)  # fmt: skip


@given(ROWS)
def test_a_tree_holds_every_row_once(rows: list[Row]) -> None:
    tree = Tree.of(rows)
    prefixes = {tuple((*row.prompt, *row.completion)[:end]) for row in rows for end in range(1, len(row) + 1)}
    assert len(tree) == len(prefixes)
    mask = tree.mask()
    for node, depth in enumerate(tree.depths):
        seen = [tree.tokens[place] for place in range(len(tree)) if mask[node, place]]
        assert len(seen) == depth + 1
        assert tuple(seen) in prefixes
    assert sum(tree.targets.values()) == pytest.approx(sum(row.weight * len(row.completion) for row in rows))
    assert tree.row_tokens == sum(map(len, rows))


def _in_double(model: Any) -> Any:
    """The model in float64 throughout: transformers' own norms compute in float32 whatever the model's type."""
    for path, module in list(model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            exact = torch.nn.RMSNorm(module.weight.shape, eps=module.variance_epsilon)
            exact.weight = module.weight
            model.set_submodule(path, exact)
    return model.double()


@pytest.mark.parametrize("family", ["qwen2", "llama"])
@settings(max_examples=15, deadline=None)
@given(rows=ROWS)
def test_loss_and_gradients_of_a_tree_are_those_of_its_rows(
    family: str, rows: list[Row], request: pytest.FixtureRequest
) -> None:
    model = _in_double(load_model(request.getfixturevalue(family), "float32"))

    def gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    given = Tree.of(rows).inputs()
    predictors, logit, labels, weights = (given.pop(name) for name in ("predictors", "logit", "labels", "weights"))
    assert given.pop("row_targets") == sum(len(row.completion) for row in rows)
    logits = model(**given, logits_to_keep=predictors).logits[0]
    together = (torch.nn.functional.cross_entropy(logits[logit], labels, reduction="none") * weights).sum()
    shared = gradients(together)
    alone = torch.zeros((), dtype=torch.float64)
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.completion]])
        logits = model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1]
        alone = alone + row.weight * torch.nn.functional.cross_entropy(
            logits, torch.tensor(row.completion), reduction="sum"
        )
    assert together.item() == pytest.approx(alone.item(), rel=1e-9)
    for one, other in zip(shared, gradients(alone), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_weights_act_from_step_to_step_as_well(qwen2: Path, tmp_path: Path, scale: float) -> None:
    """A step of light rows moves less than one of heavy rows; only the proportions matter."""
    model = get_peft_model(load_model(qwen2, "float32"), LoraConfig(target_modules="all-linear"))
    rows = [Row([5, 6, 7], [8, 9], weight * scale, f"run{weight}") for weight in (1.5, 0.5)]
    config = SFTConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=1, learning_rate=0.0, logging_steps=1,
        max_length=None, dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False, use_cpu=True,
        report_to=[], train_sampling_strategy="sequential", save_strategy="no", bf16=False, disable_tqdm=True,
    )  # fmt: skip
    trainer = TreeTrainer(model, config, [[row] for row in rows], processing_class=load_tokenizer(qwen2))
    trainer.train()
    first, second = (entry for entry in trainer.state.log_history if "loss" in entry)
    model.zero_grad()
    logits = model(input_ids=torch.tensor([[5, 6, 7, 8, 9]])).logits[0, 2:4]
    mean = torch.nn.functional.cross_entropy(logits, torch.tensor([8, 9]))
    mean.backward()
    norm = torch.nn.utils.get_total_norm([w.grad for w in model.parameters() if w.grad is not None]).item()
    assert (first["loss"], second["loss"]) == pytest.approx((mean.item(), mean.item()), rel=1e-3)
    assert (first["grad_norm"], second["grad_norm"]) == pytest.approx((1.5 * norm, 0.5 * norm), rel=1e-3)


def test_the_rows_of_a_run_stay_together_and_every_pass_is_whole() -> None:
    rows = [Row([1], [2], 1.0, f"run{number // 3}") for number in range(15)]
    batches = plan_batches(rows, runs_per_batch=2, batches=6, seed=1)
    assert [len({row.run for row in batch}) for batch in batches] == [2, 2, 1, 2, 2, 1]
    for start in (0, 3):
        assert sorted(row.run for batch in batches[start : start + 3] for row in batch) == [row.run for row in rows]
    assert batches == plan_batches(rows, 2, seed=1, batches=6)
    assert [batch[0].run for batch in batches[:3]] != [batch[0].run for batch in batches[3:]]


def test_a_batch_whose_tree_is_too_large_is_divided() -> None:
    rows = [Row([1], [number, number + 1, number + 2], 1.0, f"run{number}") for number in range(0, 40, 4)]
    batches = plan_batches(rows, runs_per_batch=10, batches=4, seed=0, tree_tokens=10)
    assert all(len(Tree.of(batch)) <= 10 for batch in batches)
    assert sorted(row.run for batch in batches for row in batch) == sorted(row.run for row in rows)
    assert plan_batches(rows[:1], 1, seed=0, batches=1, tree_tokens=2) == [rows[:1]]


def test_small_updates_are_not_lost_in_a_short_type() -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    exact = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    ours, theirs = (
        MasterAdamW([weight], lr=1e-4),
        torch.optim.AdamW([exact], lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0),
    )
    for step in range(100):
        gradient = torch.tensor([1.0, -1.0, 0.5, (-1.0) ** step])
        weight.grad, exact.grad = gradient.bfloat16(), gradient.double()
        ours.step()
        theirs.step()
        if step == 50:  # a checkpoint in between changes nothing
            saved = ours.state_dict()
            ours = MasterAdamW([weight], lr=1e-4)
            ours.load_state_dict(saved)
    assert ours.state[weight]["master"].dtype == torch.float32
    torch.testing.assert_close(ours.state[weight]["master"].double(), exact.detach(), rtol=1e-5, atol=1e-6)
    assert weight[0].item() != 1.0


def _store(workspace: Workspace, traces: list[Rollout]) -> None:
    with TraceStore(workspace.traces) as store:
        for rollout in traces:
            store.add(rollout)


@pytest.fixture
def selected(qwen2: Path, traces: list[Rollout], make_workspace: Callable[..., Workspace]) -> Workspace:
    """A workspace with rows of a teacher, for a tiny Qwen2."""
    workspace = make_workspace(qwen2)
    _store(workspace, traces)
    write_datasets(workspace)
    return workspace


def _train(workspace: Workspace, *arguments: object) -> str:
    """Run `flywheel train` in this process."""
    command = ["-w", str(workspace.folder), *map(str, arguments)]
    result = CliRunner().invoke(flywheel, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_an_adapter_learns_and_loads_in_plain_peft(
    family: str, request: pytest.FixtureRequest, traces: list[Rollout], make_workspace: Callable[..., Workspace]
) -> None:
    from peft import PeftModel

    folder = request.getfixturevalue(family)
    workspace = make_workspace(folder)
    _store(workspace, traces)
    write_datasets(workspace)
    printed = _train(workspace, "train", "--role", "page_search", "--steps", 30)
    assert "page_search@1: " in printed
    target = workspace.adapter("page_search@1")
    card = read_card(target)
    assert card.last_loss < 0.7 * card.first_loss
    assert (card.method, card.parents, card.steps) == ("sft", (), 30)
    assert sorted(path.name for path in target.iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors", "card.json", "loss.png",
    ]  # fmt: skip
    assert sorted(path.name for path in target.parent.iterdir()) == [".1", "1"]  # no checkpoints are left
    base = load_model(folder, "float32")
    row = tokenise(load_tokenizer(folder), read_examples(workspace.dataset("page_search"), "page_search")[0][0])
    ids = torch.tensor([[*row.prompt, *row.completion]])
    with torch.no_grad():
        before = base(ids).logits
        after = PeftModel.from_pretrained(base, target)(ids).logits
    assert not torch.allclose(before, after, atol=1e-3)
    loss = torch.nn.functional.cross_entropy(after[0, len(row.prompt) - 1 : -1], torch.tensor(row.completion))
    assert loss.item() < 0.8 * card.first_loss


def test_a_killed_training_goes_on_from_its_checkpoint(selected: Workspace) -> None:
    """Kill -9 between two checkpoints; the loss curve in the end is that of an unbroken training."""
    setting = ("-o", "train.checkpoint_steps=5")
    arguments = ["train", "--role", "supervisor", "--steps", "40"]
    command = [sys.executable, "-m", "flywheel", "-w", str(selected.folder), *setting, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = selected.adapter("supervisor@1").with_name(".1.training")
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoint-*/trainer_state.json")) and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert selected.versions("supervisor") == []
    _train(selected, *setting, *arguments)
    card = read_card(selected.adapter("supervisor@1"))
    assert card.steps == 40
    _train(selected, *setting, *arguments)
    unbroken = read_card(selected.adapter("supervisor@2"))
    assert (card.first_loss, card.last_loss) == pytest.approx((unbroken.first_loss, unbroken.last_loss), rel=1e-3)
    assert not folder.exists()


def test_another_training_does_not_go_on_from_a_foreign_checkpoint(selected: Workspace) -> None:
    folder = selected.adapter("supervisor@1").with_name(".1.training")
    (folder / "checkpoint-3").mkdir(parents=True)
    (folder / "checkpoint-3" / "trainer_state.json").write_text("{}")
    (folder / "inputs.sha256").write_text("other")
    _train(selected, "train", "--role", "supervisor", "--steps", 2)
    assert read_card(selected.adapter("supervisor@1")).steps == 2


def test_accumulated_batches_are_one_batch(selected: Workspace) -> None:
    """Two runs at a time, or one run twice: the same loss and the same weights."""
    _train(selected, "-o", "train.batch=2", "train", "--role", "wiki_search", "--steps", 6)
    accumulated = ("-o", "train.batch=1", "-o", "train.accumulation=2")
    _train(selected, *accumulated, "train", "--role", "wiki_search", "--steps", 6)
    first, second = (read_card(selected.adapter(f"wiki_search@{number}")) for number in (1, 2))
    assert first.first_loss == pytest.approx(second.first_loss, rel=1e-3)
    assert first.last_loss == pytest.approx(second.last_loss, rel=1e-2)


@pytest.mark.slow
def test_two_processes_train_as_one_does(selected: Workspace) -> None:
    """accelerate launch on two CPU processes (gloo) against one process that accumulates two steps."""
    common = ["-m", "flywheel", "-w", str(selected.folder), "-o", "train.batch=1"]
    arguments = ["train", "--role", "wiki_search", "--steps", "6"]
    launch = [
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
    ]  # fmt: skip
    done = subprocess.run([*launch, *common, *arguments], capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    _train(selected, "-o", "train.batch=1", "-o", "train.accumulation=2", *arguments)
    first, second = (read_card(selected.adapter(f"wiki_search@{number}")) for number in (1, 2))
    assert selected.versions("wiki_search") == [1, 2]
    assert (first.first_loss, first.last_loss) == pytest.approx((second.first_loss, second.last_loss), rel=2e-3)


def test_the_learning_rate_follows_the_size_of_the_base(selected: Workspace) -> None:
    """The documented rates are the ones that are taken, and a rate in the settings overrules them."""
    from train.model import learning_rate

    table = re.findall(r"^\| (?:up to )?(\S+) \| (\de-4) \|", (ROOT / "docs/training.md").read_text(), re.MULTILINE)
    assert len(table) == 4
    for size, rate in table:
        parameters = int(float(size[:-1]) * 1e9) if size.endswith("B") else 70 * 10**9
        assert learning_rate(TrainConfig(), "sft", parameters) == float(rate)
        assert learning_rate(TrainConfig(), "dpo", parameters) == pytest.approx(float(rate) / 10)
    assert learning_rate(TrainConfig(learning_rate=1e-3), "sft", 10**9) == 1e-3
    _train(selected, "-o", "train.learning_rate=0", "train", "--role", "page_search", "--steps", 1)
    assert read_card(selected.adapter("page_search@1")).learning_rate == 8e-4


def test_accelerate_reads_the_fsdp_settings_that_are_documented() -> None:
    from accelerate.commands.config import load_config_from_file
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    settings = load_config_from_file(str(ROOT / "docs/fsdp.yaml"))
    assert settings.distributed_type == DistributedType.FSDP
    names = {"fsdp_version" if name == "fsdp_version" else name.removeprefix("fsdp_") for name in settings.fsdp_config}
    assert names <= set(inspect.signature(FullyShardedDataParallelPlugin).parameters)


def test_a_role_is_trained_and_run_with_another_prompt_than_its_rows_had(selected: Workspace) -> None:
    """The card remembers the prompt, collection sends it, and the next selection knows it."""
    _train(selected, "train", "--role", "supervisor", "--steps", 1, "--prompt", "full")
    card = read_card(selected.adapter("supervisor@1"))
    assert card.prompt == "full"
    _train(selected, "-o", "engine.context=4096", "collect", "--questions", "embedded", "--limit", 2, "--round", 5,
           "--adapter", "supervisor")  # fmt: skip
    with TraceStore(selected.traces) as store:
        runs = [run for rollout in store.rollouts(RolloutFilter(round=5)) for run in rollout.runs]
    roots = [run for run in runs if run.role == "supervisor"]
    assert {run.prompt for run in roots} == {"full"}
    with pytest.raises(InputError, match="--prompt needs --role"):
        _train(selected, "train", "--all", "--prompt", "full")


def test_a_tracker_that_is_not_installed_is_named(selected: Workspace) -> None:
    with pytest.raises(InputError, match=r"train.track=wandb needs the package wandb: pip install wandb"):
        _train(selected, "train", "--role", "supervisor", "--track", "wandb")


def test_a_full_disk_is_named_and_leaves_no_adapter(selected: Workspace) -> None:
    """Files may not grow beyond 20 kB, which a checkpoint does."""
    command = [
        sys.executable, "-m", "flywheel", "-w", str(selected.folder), "-o", "train.checkpoint_steps=1", "train",
        "--role", "supervisor", "--steps", "3",
    ]  # fmt: skip

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit, timeout=200)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert selected.versions("supervisor") == []


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("x"), MemoryError(), RuntimeError("not enough memory: 9")])
def test_memory_that_runs_out_is_named(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"lower train\.tree_tokens"), named_failures(_task(tmp_path)):
        raise error


def _task(folder: Path) -> Task:
    return Task("supervisor", 1, folder, "", "full", "full", folder / "1")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (Exception("No space left on device (os error 28)"), InfrastructureError, "cannot write"),
        (SafetensorError("x"), InfrastructureError, "cannot write"),
        (RuntimeError("PytorchStreamReader failed reading"), DataError, "remove that folder"),
    ],
)
def test_a_disk_that_fails_in_odd_words_is_named(error: Exception, kind: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=said), named_failures(_task(tmp_path)):
        raise error


def test_what_went_in_is_what_the_card_says(selected: Workspace) -> None:
    """The rows as they were read, although the file is another by the end; and a name that is never used again."""
    path = selected.dataset("page_search")
    read = sha256(path)
    command = [sys.executable, "-m", "flywheel", "-w", str(selected.folder), "train", "--role", "page_search"]
    child = subprocess.Popen([*command, "--steps", "30"], stderr=subprocess.PIPE, text=True)
    folder = selected.adapter("page_search@1").with_name(".1.training")
    while not folder.exists() and child.poll() is None:
        time.sleep(0.02)
    path.unlink()
    assert child.wait(timeout=120) == 0, child.stderr and child.stderr.read()
    card = read_card(selected.adapter("page_search@1"))
    assert card.dataset_hash == read
    shutil.rmtree(selected.adapter("page_search@1"))
    assert selected.next_version("page_search") == 2


def test_a_stopped_training_keeps_its_number_and_its_prompt(selected: Workspace) -> None:
    """Another method takes another number, and another prompt begins anew."""
    command = [sys.executable, "-m", "flywheel", "-w", str(selected.folder), "-o", "train.checkpoint_steps=2", "train"]
    child = subprocess.Popen([*command, "--role", "supervisor", "--prompt", "full", "--steps", "60"])
    folder = selected.adapter("supervisor@1").with_name(".1.training")
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoint-*/trainer_state.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert selected.unfinished("supervisor") == 1
    _train(selected, "-o", "train.checkpoint_steps=2", "train", "--role", "supervisor", "--steps", "60")
    card = read_card(selected.adapter("supervisor@1"))
    assert card.prompt == "compact"
    _train(selected, "-o", "train.checkpoint_steps=2", "train", "--role", "supervisor", "--steps", "60")
    assert read_card(selected.adapter("supervisor@2")).first_loss == pytest.approx(card.first_loss, rel=1e-3)


@pytest.mark.parametrize("tree_tokens", [10, 1000])
def test_every_row_is_seen_however_small_a_step_must_be(tree_tokens: int) -> None:
    rows = [Row(list(range(7 * n, 7 * n + 6)), [1], 1.0, f"run {n // 3}") for n in range(60)]
    planned = plan_batches(rows, 4, seed=0, epochs=2, tree_tokens=tree_tokens)
    counts = Counter(id(row) for batch in planned for row in batch)
    assert set(counts.values()) == {2} and len(counts) == 60
    half = plan_batches(rows, 4, seed=0, epochs=0.5, tree_tokens=tree_tokens)
    assert len({row.run for batch in half for row in batch}) == 10


def test_an_exploding_training_leaves_no_adapter(
    selected: Workspace,
) -> None:
    settings = ["-o", "train.learning_rate=1e30", "-o", "train.warmup_steps=0"]
    arguments = ["-w", str(selected.folder), *settings, "train", "--role", "supervisor", "--steps", "4"]
    with pytest.raises(DataError, match=r"lower train\.learning_rate"):
        CliRunner().invoke(flywheel, arguments, catch_exceptions=False)
    assert selected.versions("supervisor") == []


def test_rows_that_are_all_too_long_are_refused(
    selected: Workspace,
) -> None:
    arguments = ["-w", str(selected.folder), "-o", "train.max_tokens=64", "train", "--role", "supervisor"]
    with pytest.raises(DataError, match="no row has at most 64 tokens"):
        CliRunner().invoke(flywheel, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("/nowhere/model", "no such model"),
        ("missing.gguf", "no such GGUF"),
        ("plain-name", "no such model"),
        ("owner/not-there", "cannot get owner/not-there from the hub"),
    ],
)
def test_a_model_that_is_not_there_is_named(model: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        resolve_folder(model)


def test_nf4_trains_on_a_cpu(selected: Workspace) -> None:
    settings = ["-o", "train.quantize=nf4"]
    arguments = ["-w", str(selected.folder), *settings, "train", "--role", "page_search", "--steps", "6"]
    result = CliRunner().invoke(flywheel, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert read_card(selected.adapter("page_search@1")).last_loss > 0
