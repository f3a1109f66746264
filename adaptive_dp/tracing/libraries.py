"""What is known of other libraries, by the names of their functions: none of them is imported.

Which calls read data, which show or store a value, which take a mean of rows, and which release
one under a claim of privacy. What is not named here is an ordinary computation: what it returns is
as private as what it was given.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

from accountants import Approximate, PrivacyLoss, Pure, ZeroConcentrated
from accountants.errors import AccountingError
from adaptive_dp.interop import opacus

WATCHED = ("pandas", "polars", "numpy", "diffprivlib", "opendp", "opacus", "adaptive_dp")
"""The libraries whose reading, mechanisms and budgets are known by name."""
UNKNOWN = frozenset({"pipeline_dp", "pydp", "snsql", "tmlt", "tumult", "jax_privacy"})
"""Libraries of differential privacy whose claims are not read: their releases are named as such."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@frozen
class Called:
    """A function or method, as a name in a library."""

    function: Any
    module: str
    name: str
    owner: Any = None
    is_class: bool = False

    @property
    def library(self) -> str:
        """The first part of the module's name."""
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        own = "" if self.owner is None else f"{type(self.owner).__name__}."
        return f"{self.library} {own}{self.name}" if self.library != "builtins" else self.name


def called(function: Any) -> Called:
    """Return where a callable is defined; a method's owner is the object that it is of."""
    if isinstance(function, type):
        return Called(function, str(function.__module__), function.__name__, None, True)
    owner = getattr(function, "__self__", None)
    name = str(getattr(function, "__name__", ""))
    name = _ALIASES.get(name, name)
    if isinstance(owner, types.ModuleType):
        return Called(function, owner.__name__, name)
    if owner is not None and not isinstance(owner, type):
        return Called(function, str(type(owner).__module__), name, owner)
    if isinstance(owner, type):  # a class method
        return Called(function, str(owner.__module__), name)
    if not name:  # an object that can be called
        return Called(function, str(type(function).__module__), "__call__", function)
    return Called(function, str(getattr(function, "__module__", "") or ""), name)


_ALIASES = {
    "hist_series": "hist",
    "hist_frame": "hist",
    "boxplot_frame": "boxplot",
    "boxplot_frame_groupby": "boxplot",
}
"""Methods of pandas that call themselves otherwise."""


# --- Where data come from ---

_READERS: Mapping[str, Callable[[str], bool]] = {
    "pandas": lambda name: name.startswith("read_") and name != "read_clipboard",
    "polars": lambda name: name.startswith(("read_", "scan_")),
    "geopandas": lambda name: name.startswith("read_"),
    "numpy": lambda name: name in {"load", "loadtxt", "genfromtxt", "fromfile", "memmap"},
    "pyarrow": lambda name: name in {"read_table", "read_csv", "read_feather", "dataset"},
    "duckdb": lambda name: name in {"sql", "query", "read_csv", "read_parquet", "read_json"},
    "_csv": lambda name: name == "reader",
    "csv": lambda name: name == "DictReader",
}


def reads_data(call: Called) -> bool:
    """Whether a call reads records from a file or a database: what it returns is private."""
    known = _READERS.get(call.library)
    return known is not None and known(call.name)


_NOISE = _words(
    "laplace normal gauss normalvariate standard_normal randn gumbel exponential geometric "
    "standard_cauchy logistic uniform"
)


def draws(call: Called) -> bool:
    """Whether a call draws random numbers."""
    if call.library == "random":
        return call.name not in {"seed", "Random", "shuffle"}
    return call.module.startswith("numpy.random") and call.name not in {"seed", "default_rng"}


def draws_noise(call: Called) -> bool:
    """Whether a call draws what could be noise for a release."""
    return draws(call) and call.name in _NOISE


TABLES = _words(
    "DataFrame Series Index LazyFrame ndarray Tensor Bunch Table Subset TensorDataset "
    "DataLoader csr_matrix csc_matrix coo_matrix recarray MaskedArray ChunkedArray "
    "GeoDataFrame"
)
"""Names of classes whose objects hold many records."""


def is_table(value: Any) -> bool:
    """Whether a value is one that holds many records."""
    kinds = type(value).__mro__
    return any(kind.__name__ in TABLES for kind in kinds) and getattr(value, "ndim", 1) != 0


# --- What becomes of rows ---

MEANS = _words(
    "mean average nanmean sum nansum count count_nonzero len std nanstd var nanvar median "
    "nanmedian quantile percentile nanquantile min max amin amax nanmin nanmax describe "
    "value_counts nunique unique mode corr cov corrcoef skew kurt kurtosis sem prod any all "
    "idxmin idxmax argmin argmax agg aggregate size histogram histogram2d bincount score "
    "accuracy_score mean_squared_error mean_absolute_error r2_score roc_auc_score f1_score "
    "confusion_matrix classification_report crosstab pivot_table n_unique null_count fmean "
    "pstdev stdev variance hist item loss norm linregress ttest_ind pearsonr spearmanr fsum "
    "dot trace ptp"
)
"""Functions and methods that make a few numbers of many rows."""
SIZES = frozenset({"len", "shape", "size", "height", "__len__"})
"""The number of rows."""
SCHEMA = _words(
    "columns dtypes dtype schema ndim width names feature_names target_names DESCR itemsize "
    "flags feature_names_in_ n_features_in_ device requires_grad collect_schema keys"
)
"""Attributes and methods that say how data are written, not what they are."""
FITTED = _words(
    "fit_transform qcut rank zscore scale minmax_scale quantile_transform robust_scale maxabs_scale"
)
"""Functions that change a row by what the other rows are."""
ROWWISE = _words(
    "Normalizer Binarizer FunctionTransformer PolynomialFeatures HashingVectorizer "
    "LabelEncoder OneHotEncoder OrdinalEncoder LabelBinarizer CountVectorizer Pipeline"
)
"""Transformers whose ``fit_transform`` is taken to change each row by itself."""
CHOSEN = frozenset({"nlargest", "nsmallest", "top_k", "bottom_k"})
"""Methods that choose rows by what the other rows are."""
LEARNS = _words(
    "fit partial_fit update append add extend insert put fill load_state_dict set write learn "
    "appendleft"
)
"""Methods after which an object holds what it was given."""


KEEPS_VALUES = _words("to_numpy tolist to_list astype copy asarray array list cast")
"""Functions that write the same values in another way."""
KEEPS_ROWS = KEEPS_VALUES | _words(
    "dropna fillna clip query filter drop_nulls fill_null head tail sample sort_values sort "
    "reset_index set_index rename itertuples iterrows iter_rows rows round abs isin between "
    "where groupby group_by select with_columns drop collect to_series to_frame get_column "
    "iter"
)
"""Functions whose result has, item by item, rows of those that they read."""


# --- Where a value leaves ---

_PLOTS = _words(
    "matplotlib seaborn plotly altair bokeh plotnine hvplot holoviews pyecharts mpl_toolkits"
)
_PLOT_METHODS = frozenset(
    {
        "hist",
        "boxplot",
        "plot",
        "scatter",
        "density",
        "__call__",
        "bar",
        "line",
        "kde",
        "box",
        "pie",
        "area",
        "hexbin",
        "barh",
    }
)
_LOGGED = _words("debug info warning warn error exception critical log fatal")
_TRACKERS = frozenset({"wandb", "mlflow", "tensorboard", "tensorboardX", "comet_ml", "neptune"})
_DUMPS = frozenset(
    {"json", "pickle", "_pickle", "joblib", "yaml", "cloudpickle", "dill", "marshal"}
)
_WRITES = frozenset({"write", "writelines", "writerow", "writerows", "write_text", "write_bytes"})


def leaves(call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Return how a call lets its arguments out: printed, plotted, saved; empty where it does not.

    Also of a method that shows or stores the object that it is of.
    """
    module, library, name = call.module, call.library, call.name
    if library in _PLOTS or module.startswith(("pandas.plotting", "polars.dataframe.plotting")):
        return "plotted"
    if library in ("pandas", "polars") and call.owner is not None:
        if name in ("hist", "boxplot") and type(call.owner).__module__.startswith("pandas"):
            return "plotted"
        if name in ("info", "glimpse", "show"):
            return "printed"
        is_stored = name.startswith(("write_", "sink_"))
        target = arguments or set(named) & {"path", "buf", "path_or_buf", "path_or_buffer", "con"}
        if is_stored or (name.startswith("to_") and name in _FILES and target):
            return "saved"
    if module == "builtins" and name == "print":
        return "printed"
    if (name == "display" and library == "IPython") or (
        library == "pprint" and name in ("pprint", "pp")
    ):
        return "printed"
    if library == "rich" and name in ("print", "rule", "log"):
        return "printed"
    if (library == "logging" and name in _LOGGED) or (library == "warnings" and name == "warn"):
        return "logged"
    if library in _TRACKERS or (library == "torch" and "tensorboard" in module):
        return "logged"
    if library == "tqdm" and (name.startswith("set_") or name == "write"):
        return "printed"
    if library in ("streamlit", "gradio", "dash"):
        return "printed"
    if name in _WRITES and call.owner is not None and call.owner in (sys.stdout, sys.stderr):
        return "printed"
    if name in _WRITES and (library in ("_io", "io", "_csv", "csv", "pathlib", "gzip", "zipfile")):
        return "" if type(call.owner).__name__ in ("StringIO", "BytesIO") else "saved"
    if (
        name in _WRITES
        and call.owner is not None
        and type(call.owner).__name__ in ("Tee", "OutStream")
    ):
        return "printed"
    if library in _DUMPS and name == "dump":
        return "saved"
    if library == "numpy" and name in ("save", "savez", "savez_compressed", "savetxt", "tofile"):
        return "saved"
    if library == "torch" and name == "save":
        return "saved"
    if library == "sys" and name in ("exit", "displayhook"):
        return "printed"
    if library in ("requests", "httpx", "urllib3", "aiohttp") and name in (
        "post",
        "put",
        "request",
    ):
        return "sent"
    if library == "subprocess" or (library in ("os", "posix") and name in ("system", "write")):
        return "sent"
    return ""


_FILES = _words(
    "to_csv to_parquet to_excel to_json to_pickle to_feather to_hdf to_sql to_html to_latex "
    "to_markdown to_string to_clipboard to_stata to_gbq to_xml to_orc"
)


# --- Mechanisms, budgets, and what they claim ---


@frozen
class Claim:
    """What a library says that a release costs, and what that rests on.

    Parameters
    ----------
    loss
        The claimed privacy loss; None where none can be read.
    relation
        The neighbours of which it is claimed: ``"add_remove"`` or ``"replace_one"``.
    assumes
        Sentences: what the claim needs that nothing here checks.
    wrong
        Why the claim does not hold, where that is seen: kinds and sentences of findings.
    why
        Why no claim can be read.
    """

    loss: PrivacyLoss | None
    relation: str = "add_remove"
    assumes: tuple[str, ...] = ()
    wrong: tuple[tuple[str, str], ...] = field(default=())
    why: str = ""


@frozen
class Release:
    """A call of a mechanism: which arguments are data, and how its claim is read.

    Parameters
    ----------
    data
        The data among the arguments.
    others
        The parameters, by name: none of them may follow the data.
    takes_rows
        Whether the mechanism reads rows and derives its sensitivity itself; else it reads a value
        whose sensitivity its user states.
    claim
        Returns the claim, after the call.
    budget
        The object that adds the claims up, if any.
    """

    data: tuple[Any, ...]
    others: Mapping[str, Any]
    takes_rows: bool
    claim: Callable[[Any, float | None], Claim]
    budget: Any = None


_DATA_NAMES = _words("array sample samples a x y X data value values X_train y_train sample_weight")


def _bound(call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, defaults included."""
    try:
        bound = inspect.signature(call.function).bind(*arguments, **named)
        bound.apply_defaults()
    except (TypeError, ValueError):
        return {f"argument {i + 1}": each for i, each in enumerate(arguments)} | dict(named)
    found = dict(bound.arguments)
    for name in [each for each, value in found.items() if isinstance(value, dict)]:
        if name in ("kwargs", "unused_args", "unused"):
            found |= found.pop(name)
    return found


def release(call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Release | None:
    """Return what a call releases, where it is one of a mechanism that is known by name."""
    if call.library == "diffprivlib":
        return _diffprivlib(call, arguments, named)
    if call.library == "opendp":
        return _opendp(call, arguments, named)
    if call.library == "opacus":
        return _opacus(call, arguments, named)
    if call.library == "adaptive_dp":
        return _own(call, arguments, named)
    if call.library in UNKNOWN and not call.is_class:
        why = f"the claims of {call.library} are not read here"
        return Release((*arguments, *named.values()), {}, True, lambda *_: Claim(None, why=why))
    return None


# diffprivlib

_LEAKY = {
    "GaussianNB": ("bounds",),
    "KMeans": ("bounds",),
    "StandardScaler": ("bounds",),
    "LinearRegression": ("bounds_X", "bounds_y"),
    "LogisticRegression": ("data_norm",),
    "PCA": ("data_norm",),
    "RandomForestClassifier": ("bounds", "classes"),
    "DecisionTreeClassifier": ("bounds", "classes"),
}
"""What diffprivlib's models take from the data where it is not given (their PrivacyLeakWarning)."""

_SAME_SIZE = (
    "diffprivlib states its claims for neighbours in which one row is another: the number of rows "
    "that each call reads is taken to be public, and the same in both"
)


def _diffprivlib(
    call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> Release | None:
    module, name, owner = call.module, call.name, call.owner
    if module.startswith("diffprivlib.mechanisms"):
        if owner is None or name != "randomise":
            return None
        return Release(
            tuple(arguments) + tuple(named.values()),
            {},
            False,
            lambda _result, known: _randomised(owner, known),
        )
    if module.startswith("diffprivlib.tools") and not call.is_class:
        given = _bound(call, arguments, named)
        names = list(given)
        first = {names[0]} if names else set()
        if name == "histogram2d":
            first = set(names[:2])
        missing: list[str] = [
            each
            for each in ("bounds", "range")
            if each in given and _is_missing(given[each]) and not _has_edges(given)
        ]
        if name == "count_nonzero":
            missing = []

        def claim(_result: Any, _known: float | None) -> Claim:
            return _pure(given.get("epsilon"), 0.0, missing, f"tools.{name}")

        others = {
            key: each for key, each in given.items() if key not in first | {"where", "weights"}
        }
        return Release(
            tuple(given[each] for each in first), others, True, claim, _accountant(given)
        )
    if module.startswith("diffprivlib.models") and owner is not None:
        if name not in ("fit", "partial_fit", "fit_transform", "fit_predict"):
            return None
        kind = type(owner).__name__
        missing = [each for each in _LEAKY.get(kind, ()) if _is_missing(getattr(owner, each, 0))]
        if kind == "PCA" and not getattr(owner, "centered", True):
            missing += ["bounds"] if _is_missing(getattr(owner, "bounds", 0)) else []
        if kind == "GaussianNB" and name == "partial_fit" and "bounds" in missing:
            missing = ["bounds"]

        def fitted(_result: Any, _known: float | None) -> Claim:
            return _pure(getattr(owner, "epsilon", None), 0.0, missing, f"models.{kind}")

        return Release(
            (*arguments, *named.values()), {}, True, fitted, getattr(owner, "accountant", None)
        )
    return None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, list) and None in value)


def _has_edges(given: Mapping[str, Any]) -> bool:
    """Whether a histogram's bins are given as edges."""
    bins = given.get("bins")
    return bins is not None and not isinstance(bins, int | str) and len(bins) > 0


def _accountant(given: Mapping[str, Any]) -> Any:
    accountant = given.get("accountant")
    return accountant


def default_accountant() -> Any:
    """Return the budget that diffprivlib uses where none is named, if one is set."""
    module = sys.modules.get("diffprivlib.accountant")
    return getattr(getattr(module, "BudgetAccountant", None), "_default", None)


def _pure(epsilon: Any, delta: float, missing: list[str], what: str) -> Claim:
    wrong = tuple(
        (
            "bounds",
            f"diffprivlib takes {each} from the data where it is not given: its claim of {what} "
            "does not hold",
        )
        for each in missing
    )
    loss = _loss(epsilon, delta)
    assumes = (_SAME_SIZE,)
    return Claim(loss, "replace_one", assumes, wrong, "" if loss else "its epsilon cannot be read")


def _loss(epsilon: Any, delta: Any = 0.0) -> PrivacyLoss | None:
    try:
        e, d = float(epsilon), float(delta or 0.0)
        return Approximate(e, d) if d > 0 else Pure(e)
    except (TypeError, ValueError, AccountingError):
        return None


def _randomised(mechanism: Any, known: float | None) -> Claim:
    """Return the claim of one ``randomise`` of a mechanism of diffprivlib."""
    stated = getattr(mechanism, "sensitivity", None)
    kind = type(mechanism).__name__
    loss = _loss(getattr(mechanism, "epsilon", None), getattr(mechanism, "delta", 0.0))
    assumes, wrong = [], []
    if stated is not None:
        assumes.append(
            f"the value that {kind} reads moves by at most its stated sensitivity when one "
            "person's data change"
        )
        if known is not None and float(stated) < known:
            wrong.append(
                (
                    "bounds",
                    f"{kind} has sensitivity={float(stated):g}, and the value that it reads moves "
                    f"by up to {known:g} with one row: its claim does not hold",
                )
            )
    return Claim(loss, "replace_one", tuple(assumes), tuple(wrong), "" if loss else "no epsilon")


# OpenDP


def _opendp(call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Release | None:
    owner, kind = call.owner, type(call.owner).__name__
    if call.name in ("__call__", "invoke") and kind == "Measurement":
        return Release(
            (*arguments, *named.values()),
            {},
            True,
            lambda _result, known: _measured(owner, known),
        )
    if call.name == "release" and owner is not None:
        context = getattr(owner, "_context", None)
        if context is None:
            context = getattr(getattr(owner, "_query", None), "_context", None)
        return Release(
            (owner,),
            {},
            True,
            lambda _result, _known: _in_context(context),
            context,
        )
    return None


def _in_context(context: Any) -> Claim:
    try:
        distance = context.d_in
        return _mapped(context.accountant, distance)
    except Exception as error:  # another library's objects: whatever they raise
        return Claim(None, why=f"the claim of its context cannot be read ({type(error).__name__})")


def _measured(measurement: Any, known: float | None) -> Claim:
    metric = str(measurement.input_metric)
    if metric.startswith(("SymmetricDistance", "InsertDeleteDistance")):
        return _mapped(measurement, 1)
    if metric.startswith(("ChangeOneDistance", "HammingDistance", "DiscreteDistance")):
        return _mapped(measurement, 1, "replace_one")
    if known is None:
        return Claim(
            None,
            why=f"a measurement of values ({metric}): how far one person's rows move the value is "
            "not known here; chain the transformation from the rows before it",
        )
    number = math.ceil(known) if re_integer(metric) else float(known)
    return _mapped(measurement, number)


def re_integer(metric: str) -> bool:
    """Whether a metric's distances are integers."""
    return "(i" in metric or "(u" in metric


def _mapped(measurement: Any, distance: Any, relation: str = "add_remove") -> Claim:
    """Return what OpenDP says of inputs at a distance, as a loss."""
    assumes = (
        f"OpenDP's claim is of inputs {distance!r} apart in {measurement.input_metric}: each "
        "person has at most that many rows"
        if "Distance()" in str(measurement.input_metric)
        else f"OpenDP's claim is of values at most {distance!r} apart",
    )
    try:
        answer = measurement.map(distance)
        measure = str(measurement.output_measure)
        if measure == "MaxDivergence":
            loss: PrivacyLoss | None = Pure(float(answer))
        elif measure == "ZeroConcentratedDivergence":
            loss = ZeroConcentrated(float(answer))
        elif measure == "Approximate(MaxDivergence)":
            loss = _loss(*answer)
        elif measure == "Approximate(ZeroConcentratedDivergence)":
            loss = None
        else:
            loss = None
    except Exception as error:  # another library's objects: whatever they raise
        return Claim(
            None, why=f"OpenDP's map has no answer at {distance!r} ({type(error).__name__})"
        )
    why = "" if loss else f"a claim by OpenDP's measure {measure} is not read here"
    return Claim(loss, relation, assumes, (), why)


# Opacus


def _opacus(call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Release | None:
    if not call.name.startswith("make_private") or call.owner is None:
        return None
    given = _bound(call, arguments, named)
    loader = given.get("data_loader")
    others = {k: v for k, v in given.items() if k not in ("data_loader", "module", "optimizer")}
    owner = call.owner
    poisson = bool(given.get("poisson_sampling", True))
    adaptive = given.get("clipping") == "adaptive" or opacus.adapts(owner)
    refused = ADAPTIVE if adaptive else "" if poisson else NOT_POISSON
    return Release(
        (loader,), others, True, lambda _result, _known: _trained(owner, poisson, refused), owner
    )


NOT_POISSON = (
    "Opacus counts its steps as Poisson samples, and with poisson_sampling=False its loader draws "
    "others: dp.interop.opacus.certificate(engine, delta=..., data_loader=...) says what passes "
    "over the data cost"
)
"""Why nothing is claimed of an engine whose loader draws no Poisson samples."""

ADAPTIVE = (
    "the noise multiplier that Opacus records for adaptive clipping does not cover its count of "
    "unclipped examples"
)
"""Why nothing is claimed of an engine whose clipping adapts."""

UNCLAIMED = (ADAPTIVE, NOT_POISSON)


def _trained(engine: Any, poisson: bool, refused: str) -> Claim:
    """Return the claim of an Opacus engine: asked again when the trace ends."""
    why = refused or "read when the trace ends"
    return Claim(None, why=why, assumes=_opacus_assumes(engine, poisson))


def _opacus_assumes(engine: Any, poisson: bool) -> tuple[str, ...]:
    sampling = (
        "each step's batch is a Poisson sample, as Opacus draws it"
        if poisson
        else "Opacus computes its claim for Poisson samples, and this loader draws others"
    )
    secure = (
        ""
        if getattr(engine, "secure_mode", False)
        else ("Opacus draws its noise as floats by torch's generator (secure_mode=False)")
    )
    return tuple(each for each in (sampling, secure, "each person has one example") if each)


# This library


_RUNS = frozenset({"run", "simulate"})


def _own(call: Called, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Release | None:
    owner, kind = call.owner, type(call.owner).__name__
    if kind == "Pipeline" and call.name in _RUNS:
        data = {k: v for k, v in named.items() if k not in ("seed", "accountant", "timeout")}
        return Release(
            (*arguments, *data.values()), {}, True, lambda result, _known: _of_result(result)
        )
    if kind == "Session" and call.name in _RUNS:
        return Release((owner,), {}, True, lambda *_: Claim(None, why="session"), owner)
    if call.module.startswith("adaptive_dp.sklearn") and call.name in ("fit", "fit_predict"):
        return Release((*arguments, *named.values()), {}, True, lambda *_: _of_estimator(owner))
    return None


def _of_result(result: Any) -> Claim:
    return of_certificate(getattr(result, "certificate", None))


def _of_estimator(estimator: Any) -> Claim:
    return of_certificate(getattr(estimator, "certificate_", None))


def of_certificate(certificate: Any) -> Claim:
    """Return a certificate's claim."""
    loss = _loss(getattr(certificate, "epsilon", None), getattr(certificate, "delta", None))
    if loss is None:
        return Claim(None, why="no certificate was found")
    relations = {each.neighbors for each in certificate.protects}
    relation = "replace_one" if relations == {"replace_one"} else "add_remove"
    return Claim(loss, relation, tuple(certificate.assumptions))


def of_session(session: Any) -> Claim:
    """Return what a session has spent, by its odometer: it holds at any time."""
    claim = of_certificate(session.certificate())
    loss = _loss(session.epsilon, session.budget.delta)
    return Claim(loss, claim.relation, claim.assumes, (), "" if loss else "its epsilon is infinite")


_BUDGETS = {
    ("diffprivlib", "BudgetAccountant"): "BudgetAccountant",
    ("opacus", "PrivacyEngine"): "PrivacyEngine",
    ("adaptive_dp", "Session"): "Session",
}


def budget(call: Called, named: Mapping[str, Any]) -> str:
    """Return the name of the budget that a call makes anew; empty where it makes none."""
    if call.library == "opendp" and call.name == "compositor":
        return "Context.compositor"
    if not call.is_class:
        return ""
    return next(
        (
            title
            for (library, name), title in _BUDGETS.items()
            if call.library == library and call.name == name
        ),
        "",
    )


def data_of_budget(
    name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> Iterator[Any]:
    """Yield the data that a budget is made with."""
    if name == "Context.compositor":
        yield from (named["data"],) if "data" in named else arguments[:1]
    if name == "Session":
        known = {"budget", "ledger", "accountant", "seed", "engine", "steps", "head", "user"}
        yield from (each for key, each in named.items() if key not in known)


def continues(call: Called, named: Mapping[str, Any], arguments: tuple[Any, ...]) -> str:
    """Return what a new budget continues, if it does: what was spent is not forgotten then."""
    if call.library == "diffprivlib":
        given = _bound(call, arguments, named)
        return "spent" if given.get("spent_budget") else ""
    if call.library == "adaptive_dp":
        return str(named.get("ledger") or "")
    return ""


def builds_release(call: Called) -> bool:
    """Whether a call of a library of privacy makes a mechanism or part of one, from parameters."""
    if call.library == "opendp":
        return call.name not in ("__call__", "invoke")
    if call.library == "diffprivlib":
        return call.is_class
    if call.library == "adaptive_dp":
        return "audit" not in call.module and call.name not in _LOOKS
    return call.library == "opacus" and call.name == "PrivacyEngine"


_LOOKS = frozenset({"report", "markdown", "audit", "check", "Files", "suggest"})
"""Functions of this library that look at data, and make no mechanism."""
