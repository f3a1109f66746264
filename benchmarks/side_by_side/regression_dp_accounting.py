"""A ridge regression with noise by hand, calibrated by dp-accounting."""

import numpy as np
import pandas as pd
from dp_accounting import GaussianDpEvent, calibrate_dp_mechanism
from dp_accounting.pld import PLDAccountant

tops = np.array([70, 20_000, 60, 20])
people = pd.read_csv("people.csv").groupby("person").head(5).fillna(0)
rows = people[["age", "income", "chronic", "visits"]].to_numpy().clip(0, tops) / tops
rows = np.column_stack([np.ones(len(rows)), rows])
multiplier = calibrate_dp_mechanism(PLDAccountant, GaussianDpEvent, 1.0, 1e-6)
sigma = multiplier * 5 * np.sqrt(14)  # five rows, each of 14 moments in [0, 1]
noise = np.triu(np.random.default_rng().normal(scale=sigma, size=(5, 5)))
moments = rows.T @ rows + noise + np.triu(noise, 1).T
ridge = 2 * sigma * np.eye(4)
weights = np.linalg.solve(moments[:4, :4] + ridge, moments[:4, 4])
model = 20 * weights / [1, *tops[:3]]
print(model, sigma)
