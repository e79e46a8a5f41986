"""Views created on a live warehouse, and warehouses saved and loaded."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

import cumulus
from cumulus import errors
from cumulus.warehouse import saved_folder
from support.oracle import Oracle, same_bag
from support.random_sql import scripts, views
from support.random_tables import SCHEMA, streams
from support.tiers import examples

SQL = "CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a"


@settings(max_examples=examples(12), deadline=None)
@given(scripts(), views(name="late"), streams(), streams(max_size=5))
def test_a_view_created_late_is_what_it_had_been_from_the_start(script, late, before, later) -> None:
    warehouse, oracle = cumulus.Warehouse(SCHEMA + script, keep="all"), Oracle(SCHEMA)
    warehouse.apply(before, per="call")
    warehouse.execute(late)
    events = [*before, *later]
    for event in before:
        oracle.apply(*event)
    select = late.split(" AS ", 1)[1]
    assert same_bag(warehouse.view("late").rows(), oracle.rows(select))
    warehouse.apply(later, per="call")
    for event in later:
        oracle.apply(*event)
    assert same_bag(warehouse.view("late").rows(), oracle.rows(select))
    fresh = cumulus.Warehouse(f"{SCHEMA}{script};{late}", keep="all")
    fresh.apply(events, per="call")
    for name in fresh.views:
        assert same_bag(warehouse.view(name).rows(), fresh.view(name).rows())
    assert warehouse.stats().rows == fresh.stats().rows


def test_views_come_and_go_while_readers_and_subscribers_stay() -> None:
    warehouse = cumulus.Warehouse(SQL, keep="all")
    heard: list = []
    warehouse.subscribe("v", heard.extend)
    reader = warehouse.view("v")
    warehouse.insert("r", [(1, 10)])
    warehouse.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM r")
    warehouse.execute("CREATE OR REPLACE VIEW w AS SELECT COUNT(*) + 1 AS n FROM r")
    warehouse.insert("r", [(1, 5)])
    assert warehouse.views == ("v", "w")
    assert warehouse.view("w").rows() == [(3,)]
    assert reader.rows() == [(1, 15)]
    assert heard[-1] == ((1, 10), (1, 15))
    with pytest.raises(errors.UsageError, match="subscribers"):
        warehouse.execute("DROP VIEW v")
    warehouse.execute("DROP VIEW w")
    with pytest.raises(errors.UnknownNameError):
        warehouse.view("w")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("CREATE VIEW w AS SELECT nope FROM r", errors.BindError),
        ("CREATE VIEW v AS SELECT a FROM r", errors.BindError),
        ("CREATE OR REPLACE TABLE r (a INT)", errors.UnsupportedError),
        ("CREATE VIEW", errors.SqlSyntaxError),
        ("DROP VIEW w", errors.BindError),
        ("CREATE VIEW w AS SELECT COUNT(*) AS n FROM r WHERE x > 3", errors.UsageError),  # rows not kept
    ],
)
def test_what_execute_cannot_do_changes_nothing(sql, error) -> None:
    warehouse = cumulus.Warehouse(SQL)
    warehouse.insert("r", [(1, 10)])
    with pytest.raises(error):
        warehouse.execute(sql)
    assert warehouse.views == ("v",)
    warehouse.insert("r", [(1, 5)])
    assert warehouse.view("v").rows() == [(1, 15)]


def test_rows_that_never_came_need_not_be_kept() -> None:
    warehouse = cumulus.Warehouse(SQL)
    warehouse.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM r WHERE x > 3")
    warehouse.insert("r", [(1, 10)])
    assert warehouse.view("w").rows() == [(1,)]
    made_from_m3 = cumulus.Warehouse(cumulus.compile(SQL))
    with pytest.raises(errors.UsageError, match="M3"):
        made_from_m3.execute("DROP VIEW v")


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scripts(), streams(), streams(max_size=5))
def test_what_is_loaded_is_what_was_saved_and_goes_on_alike(tmp_path_factory, script, before, later) -> None:
    path = tmp_path_factory.mktemp("saved") / "here"
    warehouse = cumulus.Warehouse(SCHEMA + script, keep="all")
    warehouse.apply(before, per="call")
    warehouse.save(path)
    loaded = cumulus.Warehouse.load(path)
    assert loaded.stats().entries == warehouse.stats().entries
    assert (loaded.stats().rows, loaded.stats().events) == (warehouse.stats().rows, warehouse.stats().events)
    for each in (warehouse, loaded):
        each.apply(later, per="call")
    for definition in warehouse.program.maps:
        mine, theirs = (dict(each._state.session.engine.stored(definition.name)) for each in (warehouse, loaded))
        assert mine == theirs
    for name in warehouse.views:
        assert same_bag(loaded.view(name).rows(), warehouse.view(name).rows())
    loaded.execute("CREATE VIEW late AS SELECT COUNT(*) AS n FROM r")
    assert loaded.view("late").get() == (loaded.stats().rows["r"],)


@pytest.fixture
def saved(tmp_path):
    warehouse = cumulus.Warehouse(SQL)
    warehouse.insert("r", [(1, 10), (2, 5)])
    warehouse.save(tmp_path / "w", format="portable")
    return warehouse, tmp_path / "w"


def rows(path) -> set:
    return set(cumulus.Warehouse.load(path).view("v").rows())


@pytest.mark.parametrize("moment", ["map", "manifest", "rename", "sync"])
def test_a_save_that_is_killed_leaves_the_old_one(saved, monkeypatch, moment) -> None:
    warehouse, path = saved
    warehouse.insert("r", [(1, 1)])

    class Killed(BaseException):
        pass

    def dies(*_args):
        raise Killed

    real = saved_folder._write
    names = {"map": "map-0.arrow", "manifest": f"{saved_folder.MANIFEST}.new"}
    if moment in names:
        monkeypatch.setattr(
            saved_folder, "_write", lambda file, write: dies() if file.name == names[moment] else real(file, write)
        )
    elif moment == "rename":
        monkeypatch.setattr(saved_folder.os, "replace", dies)
    else:
        monkeypatch.setattr(saved_folder, "sync_folder", dies)
    with pytest.raises(Killed):
        warehouse.save(path, format="portable")
    monkeypatch.undo()
    assert rows(path) == {(1, 10), (2, 5)}
    warehouse.save(path, format="portable")
    assert rows(path) == {(1, 11), (2, 5)}
    assert len(list(path.glob("data-*"))) == 1


def test_a_damaged_folder_is_a_named_error(saved, tmp_path) -> None:
    warehouse, path = saved
    (file,) = path.glob("data-*/map-0.arrow")
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + b"x" + whole[-8:])
    with pytest.raises(errors.StoreError, match="damaged"):
        cumulus.Warehouse.load(path)
    file.unlink()
    with pytest.raises(errors.StoreError, match="missing"):
        cumulus.Warehouse.load(path)
    file.write_bytes(whole)
    manifest = json.loads((path / saved_folder.MANIFEST).read_text())
    (path / saved_folder.MANIFEST).write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(errors.MismatchError, match="format 99"):
        cumulus.Warehouse.load(path)
    (path / saved_folder.MANIFEST).write_text("{")
    with pytest.raises(errors.StoreError, match="damaged"):
        cumulus.Warehouse.load(path)
    with pytest.raises(errors.StoreError, match="missing"):
        cumulus.Warehouse.load(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note.txt").write_text("mine")
    with pytest.raises(errors.StoreError, match="not empty"):
        warehouse.save(tmp_path / "other")


def test_maps_of_another_program_are_refused(saved) -> None:
    _, path = saved
    other = cumulus.compile(f"{SQL.split(';')[0]}; CREATE VIEW v AS SELECT a, x, COUNT(*) AS s FROM r GROUP BY a, x")
    (file,) = path.glob("data-*/program.m3")
    file.write_text(str(other))
    manifest = json.loads((path / saved_folder.MANIFEST).read_text())
    manifest["files"]["program.m3"] = saved_folder._hash(file)
    (path / saved_folder.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(errors.MismatchError, match="another program"):
        cumulus.Warehouse.load(path)


def test_static_tables_stay_closed_after_loading(tmp_path) -> None:
    warehouse = cumulus.Warehouse(
        "CREATE TABLE n (id INT) WITH (static = true); CREATE TABLE c (id INT);"
        "CREATE VIEW v AS SELECT COUNT(*) AS k FROM n, c WHERE n.id = c.id"
    )
    warehouse.insert("n", [(1,)])
    warehouse.insert("c", [(1,)])
    warehouse.save(tmp_path / "w")
    loaded = cumulus.Warehouse.load(tmp_path / "w")
    with pytest.raises(errors.StaticTableError):
        loaded.insert("n", [(2,)])
    loaded.insert("c", [(1,)])
    assert loaded.view("v").rows() == [(2,)]


def test_scripts_are_texts_or_paths_of_files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = cumulus.Warehouse(SQL, keep="all")
    (tmp_path / "more.sql").write_text("CREATE VIEW w AS SELECT a FROM r")
    warehouse.execute("more.sql")
    assert warehouse.views == ("v", "w")
    with pytest.raises(errors.InputError, match=f"there is no file less.sql\nThis is {tmp_path}"):
        warehouse.execute("less.sql")
    with pytest.raises(errors.SqlSyntaxError, match=r"no statement begins with more\n.*\n.*\nA script is made of"):
        warehouse.execute("more")
