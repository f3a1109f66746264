"""What clipping does by itself, without noise: the followed quantile beside no clipping at all.

    python examples/clipping.py

Gradients that are clipped to a quantile of their norms are biased: the rows that a model gets wrong
are the long ones, and they lose most. On two classes of equal size both sides lose alike; where one
class is rare, low quantiles silence it. These are simulations with next to no noise: their epsilon
says how much they would give away.
"""

import numpy as np

import adaptive_dp as dp

FEATURES = ["a", "b", "c"]
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
STEPS, RATE = 80, 4.0


def rows(count, shift, seed):
    """Return rows of a logistic model; the lower ``shift``, the rarer is the class "yes"."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, (count, len(FEATURES)))
    score = x @ np.array([4.0, -3.0, 2.0]) + shift
    yes = score + draw.logistic(size=count) > 0
    return {**dict(zip(FEATURES, x.T, strict=True)), "label": np.where(yes, "yes", "no")}


def measured(model, data):
    """Return the accuracy, and the share of the "yes" that is found."""
    said = model["intercept"] + sum(model[name] * data[name] for name in FEATURES) > 0
    yes = data["label"] == "yes"
    return float(np.mean(said == yes)), float(np.mean(said[yes]))


def main():
    """Print accuracies by quantile."""
    table = dp.dataset("rows", columns={**dict.fromkeys(FEATURES, (-1, 1)), "label": ["no", "yes"]})
    options = {"steps": STEPS, "sampling_rate": 1.0, "learning_rate": RATE}
    learners = {"not clipped": dp.NoisySGD(FEATURES, "label", clip=1.0, **options)}
    for quantile in QUANTILES:
        followed = dp.Clipping(quantile=quantile, rate=0.5)
        learner = dp.NoisySGD(FEATURES, "label", clip=0.5, adaptive=followed, **options)
        learners[f"quantile {quantile:g}"] = learner
    for title, shift in (("classes of equal size", 0.0), ("a rare class", -3.5)):
        train, test = rows(4_000, shift, 0), rows(4_000, shift, 1)
        share = np.mean(test["label"] == "yes")
        print(f"{title}: {share:.1%} are yes\n{'':14s} accuracy  of the yes  without clipping")
        for name, learner in learners.items():
            plan = dp.Pipeline(model=table.solve(learner)).with_delta(1e-5).fix(sigma=1e-6)
            result = plan.simulate(seed=0, rows=train)
            right, found = measured(result["model"], test)
            if name == "not clipped":
                base = right
            print(f"{name:14s} {right:8.4f} {found:11.4f} {right - base:+17.4f}")
    print(f"the last one's epsilon: {result.certificate.epsilon:.3g}")


if __name__ == "__main__":
    main()
