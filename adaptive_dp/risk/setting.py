"""A problem's constants, the kinds of bounds, and the laws of the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, Protocol, get_args

from attrs import field, frozen
from scipy import special

import accountants
from accountants.errors import DomainError, integer, nonnegative, positive, probability
from accountants.numerics import down, up

# -----------------------------------------------------------------------------
# The problem's constants, and the kinds of bounds: upper, lower, and rates without constants.
#
# The empirical risk is the sum ``F(w) = f_1(w) + ... + f_n(w)`` over records, minimized over a
# closed convex set W. Constants are those of one record's loss: it is convex and L-Lipschitz on W,
# perhaps mu-strongly convex and beta-smooth, so that F has n times as much of each. A *mean* form
# is the sum's divided by n. The *excess* of w is ``F(w) - min F`` over W; a population excess is
# ``n (E f(w; z) - min E f(.; z))`` for records drawn independently from one law.


Neighbors = Literal["replace_one", "zero_out"]
"""One of n records is exchanged, or its loss is left out; n is public in both."""

ROUNDING = 2.0**20
"""Units in the last place by which a bound is moved outward, past every rounding in a formula."""


def _n(value: int) -> int:
    return integer("Setting.n", value)


def _width(value: int) -> int:
    return integer("Setting.width", value)


def _lipschitz(value: float) -> float:
    return positive("Setting.lipschitz", value)


def _radius(value: float) -> float:
    return positive("Setting.radius", value)


def _strong(value: float) -> float:
    return nonnegative("Setting.strong_convexity", value)


def _drift(value: float) -> float:
    return value if value == math.inf else positive("Setting.drift", value)


def _smooth(value: float) -> float:
    return value if value == math.inf else positive("Setting.smoothness", value)


def _round_up(total: float) -> float:
    """Return an upper bound past the rounding of its formula."""
    # outward: an upper bound may only be too large
    return up(float(total), ROUNDING)


def _round_down(total: float) -> float:
    """Return a lower bound past the rounding of its formula, at least 0."""
    # outward: a lower bound may only be too small, and 0 always holds
    return max(0.0, down(float(total), ROUNDING))


class FoundConstants(Protocol):
    """What is read of a loss's constants."""

    @property
    def lipschitz(self) -> float:
        """The largest size of the slope."""
        ...

    @property
    def smoothness(self) -> float:
        """The largest second derivative."""
        ...


class HasConstants(Protocol):
    """The protocol of losses whose constants are known: those of `adaptive_dp.erm`."""

    @property
    def outputs(self) -> int:
        """The number of scores."""
        ...

    def constants(self, reach: float = ...) -> FoundConstants:
        """Return the constants at scores of norm at most ``reach``."""
        ...


@frozen(kw_only=True)
class Setting:
    """The public constants of a convex problem: what is known before the data are read.

    Parameters
    ----------
    n
        The number of records, public.
    width
        The number p of parameters.
    lipschitz
        L: the l2 norm of one record's gradient is at most L on W.
    radius
        R: W lies in the l2 ball of radius R around a public point, the start, that is in W.
        Lower bounds take W for that ball.
    strong_convexity
        mu, of one record's loss; 0 where it is only convex.
    smoothness
        beta, of one record's loss; infinite where its gradient is not Lipschitz.
    stationary
        Whether the gradient of F is known to vanish at a minimizer of F on W: true of problems
        without constraint, and where the minimizer lies inside of W. Bounds that use it
        are wrong without it: with an active constraint the excess is of first order in the noise.
    linear
        Whether a record's loss depends on w by one number ``<x, w>``, ``|x| <= 1``, with
        ``|f'| <= L`` and ``f'' <= beta`` on all of R^p: a generalised linear model.
    rank
        For a linear model, the rank of the records' span; min(n, p) where it is not known.
    neighbors
        Under ``"replace_one"`` a record's gradient may move by 2L, under ``"zero_out"`` by L.
    drift
        An upper bound of n times the distance of neighbours' minimizers, where one is known that
        does not follow from L and mu: 2R for quadratics of one matrix (`quadratic`), whose
        minimizer is the mean of the records. Infinite where none is known.

    Examples
    --------
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> setting.move, setting.trivial
    (2.0, 500.0)
    """

    n: int = field(converter=_n)
    width: int = field(converter=_width)
    lipschitz: float = field(converter=_lipschitz)
    radius: float = field(converter=_radius)
    strong_convexity: float = field(default=0.0, converter=_strong)
    smoothness: float = field(default=math.inf, converter=_smooth)
    stationary: bool = False
    linear: bool = False
    rank: int | None = None
    neighbors: Neighbors = "replace_one"
    drift: float = field(default=math.inf, converter=_drift)

    def __attrs_post_init__(self) -> None:
        # add_remove hides n, from which the methods' noise is computed
        if self.neighbors not in get_args(Neighbors):
            raise DomainError(
                f"Setting.neighbors must be 'replace_one' or 'zero_out', got {self.neighbors!r}: "
                "the noise of these methods depends on n, which 'add_remove' keeps private"
            )
        # mu <= beta for every loss: both bound the same second derivative
        if self.strong_convexity > self.smoothness:
            raise DomainError(
                "Setting.strong_convexity must be at most Setting.smoothness, got "
                f"{self.strong_convexity!r} and {self.smoothness!r}"
            )
        if self.rank is not None:
            if not self.linear:
                raise DomainError("Setting.rank is for linear models; pass linear=True")
            # the span of n records in R^p has a rank of at most min(n, p)
            if integer("Setting.rank", self.rank) > min(self.n, self.width):
                raise DomainError(
                    f"Setting.rank must be at most n and width, got {self.rank!r}, {self.n} and "
                    f"{self.width}"
                )

    @classmethod
    def of(
        cls,
        loss: HasConstants,
        *,
        n: int,
        features: int,
        row_norm: float,
        radius: float,
        ridge: float = 0.0,
        neighbors: Neighbors = "replace_one",
    ) -> Setting:
        """Return the setting of a linear model: its class's constants, inferred from its loss.

        A record's loss is ``f(<x, w>, y) + (ridge / 2) |w|^2``, with ``|x| <= row_norm`` and
        ``|w| <= radius``. By the loss's constants at scores within ``row_norm radius``:
        ``L = l row_norm + ridge radius``, ``beta = s row_norm^2 + ridge``, ``mu = ridge`` (records
        may be 0, so that the loss's own curvature proves nothing). The ridge is the same for all
        records: an exchange moves the minimizer by ``2 l row_norm / (n ridge)`` (`drift`).

        Parameters
        ----------
        loss
            Of `adaptive_dp.erm`.
        n, radius, neighbors
            As for `Setting`.
        features
            The number of coordinates of x.
        row_norm
            The largest l2 norm of x.
        ridge
            In units of the mean loss.

        Examples
        --------
        >>> from adaptive_dp.erm import Logistic
        >>> smooth = Setting.of(
        ...     Logistic(), n=100, features=5, row_norm=1.0, radius=2.0, ridge=0.5)
        >>> smooth.family, round(smooth.kappa, 6)
        ('H', 1.5)
        >>> plain = Setting.of(Logistic(), n=100, features=5, row_norm=1.0, radius=2.0)
        >>> plain.family, plain.linear, round(plain.smoothness, 6)
        ('J', True, 0.25)
        """
        row_norm, ridge = positive("row_norm", row_norm), nonnegative("ridge", ridge)
        everywhere = loss.constants(math.inf)
        # bounds for linear models need the slope's bound on all of R^p
        linear = ridge == 0 and loss.outputs == 1 and everywhere.lipschitz < math.inf
        reach = _round_up(row_norm * positive("radius", radius))
        found = everywhere if linear else loss.constants(reach)
        # of any data: per coordinate of the scores the same row, so that eigenvalues are |x|^2
        slope = _round_up(found.lipschitz * row_norm)
        # a record that is left out takes its share of the ridge along: then L bounds the move
        is_fixed = ridge > 0 and neighbors == "replace_one"
        return cls(
            n=n,
            width=integer("features", features) * loss.outputs,
            lipschitz=_round_up(slope + ridge * radius),
            radius=radius,
            strong_convexity=ridge,
            smoothness=_round_up(found.smoothness * row_norm**2 + ridge),
            linear=linear,
            neighbors=neighbors,
            drift=_round_up(2 * slope / ridge) if is_fixed else math.inf,
        )

    @property
    def family(self) -> Literal["F", "G", "J", "H"]:
        """The class of Lowy and Razaviyayn 2021, of a record's loss and of the mean alike.

        F: convex, L-Lipschitz on the ball of radius R. G: mu-strongly convex besides; J:
        beta-smooth besides; H: both. So H is in G and in J, and these are in F (`includes`).
        """
        if self.strong_convexity > 0:
            return "G" if self.smoothness == math.inf else "H"
        return "F" if self.smoothness == math.inf else "J"

    @property
    def kappa(self) -> float:
        """The condition number ``beta / mu``, rounded up; infinite outside of H."""
        if self.family != "H":
            return math.inf
        return up(self.smoothness / self.strong_convexity, 4)

    def includes(self, other: Setting) -> bool:
        """Return whether every problem of ``other`` is proven to be one of this setting.

        It is an order: of constants on the same ball, with L and beta at most and mu at least as
        here. So every upper bound for this setting holds for the other.

        Examples
        --------
        >>> strong = Setting(n=10, width=2, lipschitz=1, radius=1, strong_convexity=0.5)
        >>> convex = Setting(n=10, width=2, lipschitz=2, radius=1)
        >>> convex.includes(strong), strong.includes(convex)
        (True, False)
        """
        same = (self.n, self.width, self.radius, self.neighbors)
        if same != (other.n, other.width, other.radius, other.neighbors):
            return False
        least = min(other.n, other.width)
        ranks = (self.rank or least, other.rank or least)
        return (
            self.lipschitz >= other.lipschitz
            and self.strong_convexity <= other.strong_convexity
            and self.smoothness >= other.smoothness
            and self.drift >= other.drift
            and self.stationary <= other.stationary
            and self.linear <= other.linear
            and (not self.linear or ranks[0] >= ranks[1])
        )

    @property
    def move(self) -> float:
        """The most by which F's gradient differs between neighbours, in l2 norm: 2L or L."""
        # one record's gradient is exchanged for another (2L), or for 0 (L)
        return (2.0 if self.neighbors == "replace_one" else 1.0) * self.lipschitz

    @property
    def trivial(self) -> float:
        """The excess of the start, whatever the data: ``n min(L R, L^2 / (2 mu))``.

        F is nL-Lipschitz and a minimizer is within R; and strong convexity, minimized over all
        of R^p, says ``F(w) >= F(start) - |grad|^2 / (2 n mu)``.
        """
        # |F(start) - min F| <= n L R, by the Lipschitz constant alone
        slope = self.lipschitz * self.radius
        if self.strong_convexity > 0:
            # the bound of strong convexity needs no radius
            slope = min(slope, self.lipschitz**2 / (2 * self.strong_convexity))
        return self.n * slope


@frozen
class Upper:
    """An upper bound of the excess risk, of a stated method, with explicit constants.

    Parameters
    ----------
    method
        The mechanism.
    total
        The bound of the excess, of the sum over records.
    n
        The number of records.
    theorem
        What proves it.
    failure
        None for a bound of the expected excess; otherwise the probability with which the excess
        may be larger.
    choices
        The method's settings that it holds at: ``lambda`` (of the sum), ``sigma``, ``steps``,
        ``step`` and the like.
    needs
        What must hold beside the setting.
    population
        Whether the excess is that of the population's risk, not of the data's.

    Examples
    --------
    >>> from adaptive_dp.risk import output_perturbation
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0, strong_convexity=1.0)
    >>> bound = output_perturbation(setting, epsilon=1.0)
    >>> round(bound.total, 6), round(bound.mean, 6)
    (20.0, 0.02)
    """

    method: str
    total: float = field(converter=_round_up)
    n: int
    theorem: str
    failure: float | None = None
    choices: Mapping[str, float] = field(factory=dict)
    needs: str = ""
    population: bool = False

    @property
    def mean(self) -> float:
        """The bound of the mean over records: ``total / n``."""
        # outward, past the rounding of the division
        return up(self.total / self.n, 4)


@frozen
class Lower:
    """A lower bound: every private method has at least this expected excess on some data set.

    Examples
    --------
    >>> from adaptive_dp.risk import lower_bound, output_perturbation
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0)
    >>> lower_bound(setting, epsilon=1.0).total < setting.trivial
    True
    """

    total: float = field(converter=_round_down)
    n: int
    theorem: str

    @property
    def mean(self) -> float:
        """The bound of the mean over records: ``total / n``."""
        # outward, past the rounding of the division
        return max(0.0, down(self.total / self.n, 4))


@frozen
class Rate:
    """How an excess grows, up to a constant that is not known here. It bounds nothing.

    Parameters
    ----------
    shape
        The value of the formula, mean form, with every unknown constant 1.
    formula
        In words.
    source
        Whose theorem.

    Examples
    --------
    >>> from adaptive_dp.risk import known_rates
    >>> setting = Setting(n=1000, width=10, lipschitz=1.0, radius=1.0)
    >>> known_rates(setting, epsilon=1.0)[0].source
    'Bassily, Smith and Thakurta 2014, delta = 0'
    """

    shape: float
    formula: str
    source: str


# -----------------------------------------------------------------------------
# The two laws of noise that output and objective perturbation use: moments and quantiles.


@frozen
class Noise:
    """Rotation-invariant noise in R^p: density ``exp(-|z| / scale)``, or N(0, scale^2 I).

    With ``scale = S / epsilon`` the first is epsilon-DP at l2 sensitivity S (Chaudhuri, Monteleoni
    and Sarwate 2011): densities at points S apart differ by at most ``e^{S / scale}``, by the
    triangle inequality. Its length is Gamma(p, scale). The second is mu-GDP with
    ``mu = S / scale``, and is calibrated by the exact profile (Balle and Wang 2018, Thm 8).

    Examples
    --------
    >>> Noise(width=10, scale=2.0).mean_norm, Noise(width=10, scale=2.0).mean_square
    (20.0, 440.0)
    """

    width: int
    scale: float
    gaussian: bool = False

    @property
    def mean_norm(self) -> float:
        """``E|z|``: ``p scale``, or ``sqrt(2) Gamma((p+1)/2) / Gamma(p/2) scale``."""
        p = self.width
        if not self.gaussian:
            # the mean of Gamma(p, scale)
            return p * self.scale
        if p > 10_000:  # the logarithms below lose digits; E|z| <= sqrt(E|z|^2), by Jensen
            return math.sqrt(p) * self.scale
        ratio = math.exp(math.lgamma((p + 1) / 2) - math.lgamma(p / 2)) * math.sqrt(2)
        # by Jensen at most sqrt(p) scale; 1e-10 covers the error of lgamma and exp
        return min(math.sqrt(p), ratio * (1 + 1e-10)) * self.scale

    @property
    def mean_square(self) -> float:
        """``E|z|^2``: ``p (p + 1) scale^2``, or ``p scale^2``."""
        # the mean square of Gamma(p, scale), or of p normal coordinates
        return self.width * (1 if self.gaussian else self.width + 1) * self.scale**2

    def length(self, failure: float) -> float:
        """Return a length that ``|z|`` exceeds with probability at most ``failure``.

        ``|z| / scale`` is Gamma(p), or ``|z|^2 / (2 scale^2)`` is Gamma(p / 2). The quantile is
        taken at ``(1 - 1e-9) failure`` for the sake of its rounding.
        """
        failure = positive("failure", probability("failure", failure, below_one=True))
        shape = self.width / 2 if self.gaussian else self.width
        # an upper quantile: taken at a smaller probability, and moved up past its own rounding
        quantile = float(special.gammainccinv(shape, failure * (1 - 1e-9))) * (1 + 1e-10)
        # of the Gaussian, |z|^2 / (2 scale^2) is Gamma(p / 2)
        return math.sqrt(2 * quantile) * self.scale if self.gaussian else quantile * self.scale

    def times(self, factor: float) -> Noise:
        """Return the law of ``factor z``."""
        return Noise(self.width, self.scale * factor, self.gaussian)


def unit_noise(width: int, epsilon: float, delta: float) -> Noise:
    """Return the noise at sensitivity 1: Gaussian, or for ``delta = 0`` of density exp(-eps |z|).

    Examples
    --------
    >>> round(unit_noise(3, 1.0, 1e-5).scale, 5), unit_noise(3, 0.5, 0.0).scale
    (3.73063, 2.0)
    """
    epsilon = positive("epsilon", epsilon)
    if probability("delta", delta, below_one=True) == 0:
        # density exp(-eps |z|): scale S / epsilon at S = 1
        return Noise(width, 1 / epsilon)
    return Noise(width, sigma(epsilon, delta), gaussian=True)


@lru_cache(maxsize=1024)
def sigma(epsilon: float, delta: float) -> float:
    """Return the least Gaussian noise at sensitivity 1: ``1 / mu``, by the exact profile."""
    # mu = 1 / sigma at sensitivity 1; the accountant's cost falls as sigma grows
    return accountants.calibrate(
        lambda value: accountants.Spend(accountants.Gaussian(mu=1 / value)),
        epsilon=epsilon,
        delta=delta,
        accountant=accountants.GaussianDP(),
        cost="decreasing",
    ).value


def printed_sigma(epsilon: float, delta: float) -> float:
    """Return the closed form of Zhao et al. 2019, to compare with: valid, and larger than needed.

    ``(c + sqrt(c^2 + eps)) / (sqrt(2) eps)`` with ``c^2 = log(2 / (sqrt(16 delta + 1) - 1))``, for
    ``0 < delta < 1/2``.

    Examples
    --------
    >>> round(printed_sigma(1.0, 1e-5), 5)
    4.60886
    """
    epsilon = positive("epsilon", epsilon)
    if not 0 < probability("delta", delta) < 0.5:
        raise DomainError(f"delta must be between 0 and 1/2 for this form, got {delta!r}")
    small = 16 * delta / (math.sqrt(16 * delta + 1) + 1)  # sqrt(16 delta + 1) - 1, uncancelled
    c = math.sqrt(math.log(2 / small))
    return (c + math.sqrt(c * c + epsilon)) / (math.sqrt(2) * epsilon)
