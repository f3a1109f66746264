"""Three statistics with noise by hand; dp-accounting says what they cost together."""

import numpy as np
import pandas as pd
from dp_accounting import ComposedDpEvent, LaplaceDpEvent
from dp_accounting.pld import PLDAccountant

people = pd.read_csv("people.csv").groupby("person").head(5)
scale = 5 * 3  # a person moves each by five rows at most, and each may cost a third
noise = np.random.default_rng().laplace
rows = len(people) + noise(scale=scale)
total = people["visits"].fillna(0).clip(0, 20).sum() + noise(scale=20 * scale)
visits = float(np.clip(total / max(rows, 1), 0, 20))
bars = people["health"].value_counts().reindex(["excellent", "good", "fair", "poor"], fill_value=0)
health = bars + noise(scale=scale, size=4)
accountant = PLDAccountant().compose(ComposedDpEvent([LaplaceDpEvent(scale / 5)] * 3))
print(rows, visits, health, accountant.get_epsilon(1e-9))
