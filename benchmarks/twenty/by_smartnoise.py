"""The twenty tasks by SmartNoise SQL, as its pages would have them."""

import pandas as pd
import snsql

people = pd.read_csv("people.csv").fillna(0).rename(columns={"year": "study_year"})


def column(kind, top=None):
    return {"type": kind, "lower": 0, "upper": top} if top else {"type": kind}


columns = {
    **{"person": {"type": "int", "private_id": True}, "study_year": {"type": "int"}},
    **{"age": column("float", 70), "income": column("float", 20_000), "female": column("int", 1)},
    **{"visits": column("int", 20), "spending": column("float", 2_000)},
    **{"health": {"type": "string"}, "education": {"type": "float"}},
}
table = {"max_ids": 5, "censor_dims": False, "rows": len(people), **columns}
metadata = {"": {"db": {"people": table}}}


def ask(query, censor=False, parts=1):
    table["censor_dims"] = censor
    privacy = snsql.Privacy(epsilon=1.0 / parts, delta=1e-6)  # of each part: of AVG, two
    reader = snsql.from_df(people, privacy=privacy, metadata=metadata)
    return reader.execute(query)[1:]


def task_1():
    return ask("SELECT COUNT(*) FROM db.people")[0][0]


def task_2():
    return ask("SELECT COUNT(DISTINCT person) FROM db.people")[0][0]


def task_3():
    return ask("SELECT AVG(visits) FROM db.people", parts=2)[0][0]


def task_4():
    return ask("SELECT SUM(spending) FROM db.people")[0][0]


def task_5():
    bars = dict(ask("SELECT health, COUNT(*) FROM db.people GROUP BY health"))
    return [bars[key] for key in ("excellent", "good", "fair", "poor")]


def task_6():
    bars = dict(ask("SELECT health, AVG(visits) FROM db.people GROUP BY health", parts=2))
    return [bars[key] for key in ("excellent", "good", "fair", "poor")]


def task_7():
    cells = ask("SELECT health, study_year, COUNT(*) FROM db.people GROUP BY health, study_year")
    bars = {(health, year): n for health, year, n in cells}
    return [[bars[h, y] for y in range(1, 6)] for h in ("excellent", "good", "fair", "poor")]


def task_12():
    return ask("SELECT STDDEV(visits) FROM db.people", parts=3)[0][0]


def task_15():
    where = "female = 1 AND age >= 40 AND visits = 0"
    return ask(f"SELECT COUNT(*) FROM db.people WHERE {where}")[0][0]


def task_17():
    query = "SELECT education, COUNT(*) FROM db.people GROUP BY education"
    return {f"{key:g}": n for key, n in ask(query, censor=True)}
