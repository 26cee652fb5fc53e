"""Variables of dashboards: the data source, and what restricts the series."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from penstock.observability.dashboards.panels import DATASOURCE
from penstock.observability.metrics.operator import SERVICE_INFO
from penstock_engine.contract.metric_specs import RUNNING

Variable = builders.DatasourceVariable | builders.QueryVariable


def datasource() -> Variable:
    kind = builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    return kind.description("The Prometheus that scrapes Penstock.")


def namespace() -> Variable:
    made = _query("namespace", "Namespace", f"label_values({SERVICE_INFO.name}, service)")
    made = made.regex("/^([^\\/]+)\\/.*$/").all_value("[^/]+")
    return made.description("Namespace of the InferenceServices.")


def model() -> Variable:
    made = _query("model", "Model", f"label_values({SERVICE_INFO.name}, model_name)")
    return made.all_value(".*").description("Model name that clients send.")


def service(*, by_model: bool = False) -> Variable:
    """The InferenceServices. by_model: only those of the chosen models."""
    matchers = 'service=~"$namespace/.+"' + (',model_name=~"$model"' if by_model else "")
    made = _query("service", "Service", f"label_values({SERVICE_INFO.name}{{{matchers}}}, service)")
    return made.description("InferenceServices, as namespace/name.")


def revision() -> Variable:
    query = f'label_values({RUNNING.name}{{service=~"$service"}}, revision)'
    made = _query("revision", "Revision", query)
    return made.all_value(".*").description("Revisions with engines.")


def pod() -> Variable:
    query = f'label_values({RUNNING.name}{{service=~"$service",revision=~"$revision"}}, pod)'
    return _query("pod", "Pod", query).all_value(".*").description("Engine pods.")


def _query(name: str, label: str, query: str) -> builders.QueryVariable:
    everything = dashboard.VariableOption(selected=True, text="All", value="$__all")
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"qryType": 5, "query": query, "refId": name})
        .current(everything)
        .multi(True)
        .include_all(True)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    )
