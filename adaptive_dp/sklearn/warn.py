"""What the estimators warn of; no warning hangs on private values."""


class PrivacyLeakWarning(UserWarning):
    """Something is read off the private data that no certificate covers.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateLogisticRegression
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = PrivateLogisticRegression(random_state=0).fit(X, X[:, 0] > 0)
    >>> [warning.category.__name__ for warning in caught]
    ['PrivacyLeakWarning']
    """


class RepeatedFitWarning(UserWarning):
    """An estimator, or a clone of it, is fitted again: each fit spends its own budget.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateRidge
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> model = PrivateRidge(random_state=0).fit(X, X[:, 0])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.fit(X, X[:, 0])
    >>> [warning.category.__name__ for warning in caught]
    ['RepeatedFitWarning']
    """
