"""Options of `penstock gateway run`."""

from typing import Annotated

import typer

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port for clients.")]
ManagementPort = Annotated[
    int, typer.Option(help="Port for probes, metrics and the operator's reads.")
]
Namespace = Annotated[
    str | None,
    typer.Option(help="Serve only services of this namespace. Default: all namespaces."),
]
MaxConnections = Annotated[
    int, typer.Option(min=1, help="Maximum number of open client connections.")
]
HeadTimeoutS = Annotated[
    float, typer.Option(min=0.01, help="Timeout for receiving a request's headers, in seconds.")
]
RequestTimeoutS = Annotated[
    float, typer.Option(min=0.01, help="Timeout for receiving a request's body, in seconds.")
]
ClientStallTimeoutS = Annotated[
    float,
    typer.Option(
        min=0.01,
        help="Timeout for a client to take each 16 KiB of its answer, in seconds.",
    ),
]
ConnectTimeoutS = Annotated[
    float, typer.Option(min=0.01, help="Timeout for connecting to an engine, in seconds.")
]
FirstByteTimeoutS = Annotated[
    float,
    typer.Option(min=0.01, help="Timeout for the first byte of an engine's answer, in seconds."),
]
BetweenChunksTimeoutS = Annotated[
    float, typer.Option(min=0.01, help="Timeout between two chunks of a stream, in seconds.")
]
TotalTimeoutS = Annotated[
    float, typer.Option(min=0.01, help="Timeout for a whole request, in seconds.")
]
WaitForEndpointS = Annotated[
    float,
    typer.Option(min=0, help="Maximum time that a request waits for an engine, in seconds."),
]
MaxWaiting = Annotated[
    int, typer.Option(min=0, help="Maximum number of waiting requests per service.")
]
MaxAttempts = Annotated[
    int,
    typer.Option(
        min=1, help="Maximum number of times that an engine gets one request; 1: no retries."
    ),
]
RetryBudgetFraction = Annotated[
    float,
    typer.Option(min=0, max=1, help="Maximum fraction of a service's requests that are retries."),
]
MinRetries = Annotated[
    int, typer.Option(min=1, help="Number of retries per service that are always allowed.")
]
MaxBodyBytes = Annotated[
    int, typer.Option(min=1, help="Maximum size of a request's body, in bytes.")
]
MaxHeldBodyBytes = Annotated[
    int,
    typer.Option(min=1, help="Maximum total size of the bodies of unanswered requests, in bytes."),
]
MaxHeaderBytes = Annotated[
    int, typer.Option(min=1, help="Maximum size of a request's headers, in bytes.")
]
MaxBufferedAnswerBytes = Annotated[
    int,
    typer.Option(min=0, help="Maximum size of an answer that is buffered for a retry, in bytes."),
]
MaxHeldAnswerBytes = Annotated[
    int,
    typer.Option(
        min=0,
        help="Maximum total size of buffered answers until they are sent, and of events of streams above "
        "64 KiB, in bytes. Further ones are passed on as they arrive.",
    ),
]
DrainDelayS = Annotated[
    float,
    typer.Option(
        min=0,
        help="Time after SIGTERM, in seconds, in which the unready gateway still serves.",
    ),
]
DrainTimeoutS = Annotated[
    float,
    typer.Option(
        min=0, help="Time for running requests to finish after --drain-delay-s, in seconds."
    ),
]
AccessLog = Annotated[bool, typer.Option(help="Log a line for each request, without its texts.")]
