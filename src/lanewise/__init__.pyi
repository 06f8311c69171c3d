"""The public names, listed here only: for type checkers, and for `__init__.py`, which imports one when it is used."""

from lanewise.capture.context.watch import watch as watch
from lanewise.capture.context.watcher import Watcher as Watcher
from lanewise.capture.recorder import Recorder as Recorder
from lanewise.capture.recorder import handler as handler
from lanewise.capture.recorder import record as record
from lanewise.compare.diff import diff as diff
from lanewise.compare.model import Comparison as Comparison
from lanewise.diagnose.explain import explain as explain
from lanewise.diagnose.settings import Settings as Settings
from lanewise.diagnose.settings import load_settings as load_settings
from lanewise.diagnose.what_if.predict import predict as predict
from lanewise.errors import InputError as InputError
from lanewise.errors import LanewiseError as LanewiseError
from lanewise.errors import NotATraceError as NotATraceError
from lanewise.errors import UsageError as UsageError
from lanewise.fix.optimize import optimize as optimize
from lanewise.fix.plans.plan import Plan as Plan
from lanewise.fix.plans.plan import load_plan as load_plan
from lanewise.measure.facts import Facts as Facts
from lanewise.measure.memory.snapshot import Snapshot as Snapshot
from lanewise.measure.memory.snapshot import read_snapshot as read_snapshot
from lanewise.notebook import NotebookView as NotebookView
from lanewise.notebook import load_ipython_extension as load_ipython_extension
from lanewise.report.model import Finding as Finding
from lanewise.report.model import Report as Report
from lanewise.report.prediction import Prediction as Prediction
from lanewise.trace.model import Trace as Trace
from lanewise.trace.reader import read as read
from lanewise.tree.build import build_tree as build_tree
from lanewise.tree.model import Tree as Tree

__version__: str
