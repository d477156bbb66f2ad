"""Pages out of files: corpus, questions with paragraphs, ZIM; and passages of a page."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collect.passages import PassageFinder, split_passages
from collect.sources import Page, PageUnavailable, open_source
from collect.sources.zim import html_to_text
from flywheel.config import SourceConfig
from flywheel.errors import InputError


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"text": "a"}], "pages.jsonl:1: a page needs a title, or a question paragraphs"),
        ([{"title": "a", "text": ""}], "pages.jsonl:1: the page 'a' needs a text"),
        ([], "has no pages"),
    ],
)
def test_a_broken_corpus_is_refused(
    write_rows: Callable[..., Path], tmp_path: Path, rows: list[object], reason: str
) -> None:
    path = write_rows("pages.jsonl", rows)
    for _ in range(2):  # nothing half made is left behind
        with pytest.raises(InputError, match=reason):
            open_source(SourceConfig(kind="corpus", path=str(path)), tmp_path)


@pytest.mark.parametrize(("path", "reason"), [("nowhere.jsonl", "no such file"), ("", "needs a file of pages")])
def test_a_missing_corpus_is_refused(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        open_source(SourceConfig(kind="corpus", path=path), tmp_path)


def test_equal_titles_with_different_texts_are_kept_apart(write_rows: Callable[..., Path], tmp_path: Path) -> None:
    texts = [("Mercury", "A planet."), ("Mercury", "A metal."), ("Mercury", "A planet."), ("Mercury (2)", "A car.")]
    path = write_rows("pages.jsonl", [{"title": title, "text": text} for title, text in texts])
    source = open_source(SourceConfig(kind="corpus", path=str(path)), tmp_path)
    titles = ("Mercury", "mercury (2)", "Mercury (2) (2)")
    assert [source.page(title).text for title in titles] == ["A planet.", "A metal.", "A car."]
    assert {page.title for page in source.search("mercury", 5)} == {"Mercury", "Mercury (2)", "Mercury (2) (2)"}
    assert source.search('"; DROP TABLE pages; --', 5) == []
    with pytest.raises(PageUnavailable, match="no page 'Mercury \\(3\\)'"):
        source.page("Mercury (3)")


def test_a_damaged_index_is_made_anew_and_titles_know_no_case(write_rows: Callable[..., Path], tmp_path: Path) -> None:
    path = write_rows("pages.jsonl", [{"title": "ÖSTERREICH", "text": "A country \ud83d."}])
    cache = tmp_path / "we?ird#50%"
    config = SourceConfig(kind="corpus", path=str(path))
    assert open_source(config, cache).page("österreich").title == "ÖSTERREICH"
    index = next(cache.glob("corpus-*.sqlite"))
    for content in (b"", b"this is no database" * 1000):
        index.write_bytes(content)
        assert open_source(config, cache).search("country", 5)[0].text == "A country ?."


PARAGRAPHS = {
    "hotpot": {"context": [["Oslo", ["Oslo is a city.", " It is old."]], ["Bergen", ["Bergen is wet."]]]},
    "hotpot on the hub": {"context": {"title": ["Oslo", "Bergen"], "sentences": [["Oslo is a city.", "It is old."],
                                                                                ["Bergen is wet."]]}},
    "musique": {"paragraphs": [{"idx": 0, "title": "Oslo", "paragraph_text": "Oslo is a city. It is old."},
                               {"idx": 1, "title": "Bergen", "paragraph_text": "Bergen is wet."}]},
    "ours": {"paragraphs": [{"title": "Oslo", "text": "Oslo is a city. It is old."},
                            {"title": "Bergen", "text": "Bergen is wet."}]},
}  # fmt: skip


@pytest.mark.parametrize("style", PARAGRAPHS)
def test_the_paragraphs_of_questions_are_pages(write_rows: Callable[..., Path], tmp_path: Path, style: str) -> None:
    path = write_rows("questions.jsonl", [{"id": "1", "question": "?", "answer": "!", **PARAGRAPHS[style]}] * 2)
    source = open_source(SourceConfig(kind="questions", path=str(path)), tmp_path)
    assert source.page("Oslo").text == "Oslo is a city. It is old."
    assert [page.title for page in source.search("wet", 5)] == ["Bergen"]


@pytest.fixture(scope="module")
def zim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Kiwix file: two pages, a redirect, a picture."""
    creator = pytest.importorskip("libzim.writer")
    path = tmp_path_factory.mktemp("zim") / "small.zim"

    class Item(creator.Item):  # type: ignore[misc, name-defined]
        def __init__(self, path: str, title: str, content: str, mimetype: str = "text/html") -> None:
            super().__init__()
            self.fields = path, title, content, mimetype

        def get_path(self) -> str:
            return self.fields[0]

        def get_title(self) -> str:
            return self.fields[1]

        def get_mimetype(self) -> str:
            return self.fields[3]

        def get_contentprovider(self) -> object:
            return creator.StringProvider(self.fields[2])

        def get_hints(self) -> dict[object, int]:
            return {creator.Hint.FRONT_ARTICLE: self.fields[3] == "text/html"}

    page = (
        "<html><head><title>Oslo</title><style>p {}</style></head><body><h1>Oslo</h1><p>Oslo is the <b>capital</b>"
        "<sup class='reference'>[1]</sup> of Norway.</p><table class='infobox'><tr><td>noise</td></tr></table>"
        "<h2>Climate<span class='mw-editsection'>edit</span></h2><p>Summers are cool.</p><ul><li>Rain</li><li>Snow</li>"
        "</ul><h3>Winter</h3><p>Cold &amp; dark.</p><script>x()</script></body></html>"
    )
    with creator.Creator(path).config_indexing(True, "eng") as archive:
        archive.set_mainpath("Oslo")
        archive.add_item(Item("Oslo", "Oslo", page))
        archive.add_item(Item("Bergen", "Bergen", "<html><body><p>Bergen is a rainy harbour.</p></body></html>"))
        archive.add_item(Item("rain.png", "Rain", "x", "image/png"))
        archive.add_redirection("Christiania", "Christiania", "Oslo", {creator.Hint.FRONT_ARTICLE: True})
    return path


def test_a_zim_file_is_searched_and_read(zim: Path, tmp_path: Path) -> None:
    source = open_source(SourceConfig(kind="zim", path=str(zim)), tmp_path)
    page = source.page("Oslo")
    assert page.text == (
        "Oslo is the capital of Norway.\n\n== Climate ==\nSummers are cool.\nRain\nSnow\n\n=== Winter ===\nCold & dark."
    )
    assert page.summary == "Oslo is the capital of Norway."
    assert page.revision
    assert source.page("Christiania").title == "Oslo"
    assert source.page("bergen").title == "Bergen"
    assert [found.title for found in source.search("rainy harbour", 5)] == ["Bergen"]
    assert source.search("Oslo", 1)[0].title == "Oslo"
    assert source.search("", 5) == []
    with pytest.raises(PageUnavailable, match=r"no page 'Osl'\. Did you mean one of: Oslo"):
        source.page("Osl")
    with pytest.raises(PageUnavailable, match="Search for pages first"):
        source.page("Zzz")


def test_a_zim_file_is_read_by_many_threads(zim: Path, tmp_path: Path) -> None:
    source = open_source(SourceConfig(kind="zim", path=str(zim)), tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: source.search("capital rainy", 2 + number % 2), range(64)))
    assert {page.title for pages in found for page in pages} == {"Oslo", "Bergen"}


@pytest.mark.parametrize(("content", "reason"), [(None, "needs a Kiwix file"), (b"no zim", "is no ZIM file")])
def test_what_is_no_zim_file_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "x.zim"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        open_source(SourceConfig(kind="zim", path=str(path)), tmp_path)


def test_html_keeps_what_is_read_and_drops_what_is_not() -> None:
    html = "<div class='mw-parser-output'><p>One<br>two</p><div class='navbox'>menu</div><h2>H</h2><td>cell</td></div>"
    assert html_to_text(html) == "One\ntwo\n\n== H ==\ncell"


def test_passages_cover_the_text_and_tear_no_word() -> None:
    text = " ".join(f"word{number}" for number in range(400))
    passages = split_passages(text, 200, 80)
    assert all(len(passage) <= 200 for passage in passages)
    words = [word for passage in passages for word in passage.split()]
    assert set(words) == set(text.split())
    assert split_passages("", 200, 80) == []
    assert "".join(split_passages("x" * 1000, 100, 0)) == "x" * 1000
    with pytest.raises(InputError, match="smaller"):
        PassageFinder(SourceConfig(passage_characters=100, passage_overlap=100))


FACTS = ["The bakery sells rye bread.", "Volcanoes erupt molten lava.", "The orchestra played a symphony."]
FACTS_TEXT = "\n\n".join(fact + " Filler about nothing in particular." * 3 for fact in FACTS)


def test_the_closest_passage_is_found_by_many_at_once(tmp_path: Path) -> None:
    finder = PassageFinder(SourceConfig(passages=1, passage_characters=140, passage_overlap=10), tmp_path)
    queries = {"classical music concert": "symphony", "food from grain": "bread", "hot rock": "lava"}
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda query: finder.find(FACTS_TEXT, query)[0], [*queries] * 20))
    assert all(queries[query] in passage for query, passage in zip([*queries] * 20, found, strict=True))


def test_vectors_are_kept_on_disk_by_text_embedder_and_size(tmp_path: Path) -> None:
    config = SourceConfig(passages=1, passage_characters=140, passage_overlap=10)
    expected = PassageFinder(config, tmp_path).find(FACTS_TEXT, "food from grain")
    again = PassageFinder(config, tmp_path)
    asked: list[list[str]] = []
    embed = again._embedder.embed
    again._embedder.embed = lambda texts: (asked.append(texts), embed(texts))[1]  # type: ignore[method-assign]
    assert again.find(FACTS_TEXT, "food from grain") == expected
    assert asked == [["food from grain"]]  # the page was not embedded again
    other = config.model_copy(update={"passage_characters": 100})
    assert all(len(passage) <= 100 for passage in PassageFinder(other, tmp_path).find(FACTS_TEXT, "food"))


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "passages.sqlite").write_bytes(b"this is no database" * 100)
    config = SourceConfig(passages=1, passage_characters=140, passage_overlap=10)
    assert "bread" in PassageFinder(config, tmp_path).find(FACTS_TEXT, "food from grain")[0]


def test_a_short_page_is_shown_whole_without_a_model() -> None:
    finder = PassageFinder(SourceConfig(embedder="/nowhere"))
    assert finder.find("Only this.", "anything") == ["Only this."]
    for _ in range(2):
        with pytest.raises(InputError, match="cannot load the embedder /nowhere"):
            finder.find("words " * 2000, "anything")


def test_a_page_has_a_summary() -> None:
    assert Page("T", "Lead one.\nLead two.\n\n== Section ==\nMore.").summary == "Lead one.\nLead two."
