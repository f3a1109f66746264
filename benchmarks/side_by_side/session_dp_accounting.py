"""Bisection for the median age with noise by hand, counted by dp-accounting."""

import numpy as np
import pandas as pd
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

ages = pd.read_csv("people.csv").groupby("person").head(5)["age"].fillna(0).clip(0, 70)
noise = np.random.default_rng().normal
query = GaussianDpEvent(75 / 5)  # sigma 75, and a person moves the counts by five at most
low, high, answers = 0.0, 70.0, 0
while PLDAccountant().compose(query, answers + 1).get_epsilon(1e-6) <= 1:
    middle = (low + high) / 2
    below, above = np.histogram(ages, [0, middle, 70])[0] + noise(scale=75, size=2)
    low, high = (low, middle) if below > above else (middle, high)
    answers += 1
print(answers, (low + high) / 2)
