"""A linear regression of visits by diffprivlib: a person is five rows, truncated by hand."""

import pandas as pd
from diffprivlib.models import LinearRegression

features = ["age", "income", "chronic"]
people = pd.read_csv("people.csv").groupby("person").head(5).fillna(0)
fit = LinearRegression(
    epsilon=1 / 5,  # of a row: five rows lose five times as much
    bounds_X=([0, 0, 0], [70, 20_000, 60]),
    bounds_y=(0, 20),
)
fit.fit(people[features].to_numpy(), people["visits"].to_numpy())
model = [fit.intercept_, *fit.coef_]
print(model)
