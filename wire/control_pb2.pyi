from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTINUE: _ClassVar[Policy]
    WAIT: _ClassVar[Policy]
    ABORT: _ClassVar[Policy]
CONTINUE: Policy
WAIT: Policy
ABORT: Policy

class RegisterRequest(_message.Message):
    __slots__ = ("job", "workers", "server", "spares", "slots", "window", "gradient_bytes", "policy", "min_workers", "weight", "stripes", "priority", "worker_count", "accelerators", "memory_bytes", "parent", "ticket", "traffic_class", "groups")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    STRIPES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WORKER_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    job: int
    workers: _containers.RepeatedScalarFieldContainer[str]
    server: str
    spares: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    window: int
    gradient_bytes: int
    policy: Policy
    min_workers: int
    weight: float
    stripes: int
    priority: int
    worker_count: int
    accelerators: int
    memory_bytes: int
    parent: int
    ticket: str
    traffic_class: int
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, job: _Optional[int] = ..., workers: _Optional[_Iterable[str]] = ..., server: _Optional[str] = ..., spares: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., window: _Optional[int] = ..., gradient_bytes: _Optional[int] = ..., policy: _Optional[_Union[Policy, str]] = ..., min_workers: _Optional[int] = ..., weight: _Optional[float] = ..., stripes: _Optional[int] = ..., priority: _Optional[int] = ..., worker_count: _Optional[int] = ..., accelerators: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., parent: _Optional[int] = ..., ticket: _Optional[str] = ..., traffic_class: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("ranks",)
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Stripe(_message.Message):
    __slots__ = ("job", "share")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    job: int
    share: int
    def __init__(self, job: _Optional[int] = ..., share: _Optional[int] = ...) -> None: ...

class Seat(_message.Message):
    __slots__ = ("host", "rank", "token")
    HOST_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    host: str
    rank: int
    token: str
    def __init__(self, host: _Optional[str] = ..., rank: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("job", "seats", "slots", "window", "note", "stripes", "groups")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    STRIPES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    job: int
    seats: _containers.RepeatedCompositeFieldContainer[Seat]
    slots: int
    window: int
    note: str
    stripes: _containers.RepeatedCompositeFieldContainer[Stripe]
    groups: _containers.RepeatedCompositeFieldContainer[Registration]
    def __init__(self, job: _Optional[int] = ..., seats: _Optional[_Iterable[_Union[Seat, _Mapping]]] = ..., slots: _Optional[int] = ..., window: _Optional[int] = ..., note: _Optional[str] = ..., stripes: _Optional[_Iterable[_Union[Stripe, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[Registration, _Mapping]]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HostState(_message.Message):
    __slots__ = ("host", "rank", "attending", "rounds", "silent_seconds")
    HOST_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    ATTENDING_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    host: str
    rank: int
    attending: bool
    rounds: int
    silent_seconds: float
    def __init__(self, host: _Optional[str] = ..., rank: _Optional[int] = ..., attending: bool = ..., rounds: _Optional[int] = ..., silent_seconds: _Optional[float] = ...) -> None: ...

class JobState(_message.Message):
    __slots__ = ("job", "generation", "hosts", "switches", "slots", "window", "policy", "rounds", "waiting_for", "stripes", "report", "parent", "accelerators", "memory_bytes", "ranking", "turns", "traffic_class", "keeps_class")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    STRIPES_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_CLASS_FIELD_NUMBER: _ClassVar[int]
    job: int
    generation: int
    hosts: _containers.RepeatedCompositeFieldContainer[HostState]
    switches: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    window: int
    policy: Policy
    rounds: int
    waiting_for: str
    stripes: _containers.RepeatedCompositeFieldContainer[Stripe]
    report: Report
    parent: int
    accelerators: int
    memory_bytes: int
    ranking: Ranking
    turns: str
    traffic_class: int
    keeps_class: bool
    def __init__(self, job: _Optional[int] = ..., generation: _Optional[int] = ..., hosts: _Optional[_Iterable[_Union[HostState, _Mapping]]] = ..., switches: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., window: _Optional[int] = ..., policy: _Optional[_Union[Policy, str]] = ..., rounds: _Optional[int] = ..., waiting_for: _Optional[str] = ..., stripes: _Optional[_Iterable[_Union[Stripe, _Mapping]]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., parent: _Optional[int] = ..., accelerators: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., ranking: _Optional[_Union[Ranking, _Mapping]] = ..., turns: _Optional[str] = ..., traffic_class: _Optional[int] = ..., keeps_class: bool = ...) -> None: ...

class Ranking(_message.Message):
    __slots__ = ("order", "place", "places", "traffic_class", "why")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    order: str
    place: int
    places: int
    traffic_class: int
    why: str
    def __init__(self, order: _Optional[str] = ..., place: _Optional[int] = ..., places: _Optional[int] = ..., traffic_class: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class QueuedJob(_message.Message):
    __slots__ = ("job", "position", "reason", "waited_seconds", "worker_count", "accelerators", "memory_bytes", "priority")
    JOB_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKER_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    job: int
    position: int
    reason: str
    waited_seconds: float
    worker_count: int
    accelerators: int
    memory_bytes: int
    priority: int
    def __init__(self, job: _Optional[int] = ..., position: _Optional[int] = ..., reason: _Optional[str] = ..., waited_seconds: _Optional[float] = ..., worker_count: _Optional[int] = ..., accelerators: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs", "queued", "partners")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PARTNERS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobState]
    queued: _containers.RepeatedCompositeFieldContainer[QueuedJob]
    partners: _containers.RepeatedCompositeFieldContainer[Partners]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobState, _Mapping]]] = ..., queued: _Optional[_Iterable[_Union[QueuedJob, _Mapping]]] = ..., partners: _Optional[_Iterable[_Union[Partners, _Mapping]]] = ...) -> None: ...

class Partners(_message.Message):
    __slots__ = ("jobs", "period_seconds", "speed_up")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SPEED_UP_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[int]
    period_seconds: float
    speed_up: float
    def __init__(self, jobs: _Optional[_Iterable[int]] = ..., period_seconds: _Optional[float] = ..., speed_up: _Optional[float] = ...) -> None: ...

class EndJobRequest(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: int
    reason: str
    def __init__(self, job: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class EndJobReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("switches", "model")
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedScalarFieldContainer[str]
    model: str
    def __init__(self, switches: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelState(_message.Message):
    __slots__ = ("switch_name", "number", "trees", "classes", "features", "rows", "numbers", "address")
    SWITCH_NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    switch_name: str
    number: int
    trees: int
    classes: int
    features: int
    rows: int
    numbers: bool
    address: int
    def __init__(self, switch_name: _Optional[str] = ..., number: _Optional[int] = ..., trees: _Optional[int] = ..., classes: _Optional[int] = ..., features: _Optional[int] = ..., rows: _Optional[int] = ..., numbers: bool = ..., address: _Optional[int] = ...) -> None: ...

class ModelList(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelState]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelState, _Mapping]]] = ...) -> None: ...

class BalanceRequest(_message.Message):
    __slots__ = ("job", "token", "samples", "rule", "size_step", "reports")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SIZE_STEP_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    job: int
    token: str
    samples: int
    rule: str
    size_step: int
    reports: _containers.RepeatedCompositeFieldContainer[SpeedReport]
    def __init__(self, job: _Optional[int] = ..., token: _Optional[str] = ..., samples: _Optional[int] = ..., rule: _Optional[str] = ..., size_step: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[SpeedReport, _Mapping]]] = ...) -> None: ...

class SpeedReport(_message.Message):
    __slots__ = ("rank", "speed", "seconds", "limit")
    RANK_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    rank: int
    speed: float
    seconds: float
    limit: int
    def __init__(self, rank: _Optional[int] = ..., speed: _Optional[float] = ..., seconds: _Optional[float] = ..., limit: _Optional[int] = ...) -> None: ...

class BatchSizes(_message.Message):
    __slots__ = ("sizes",)
    SIZES_FIELD_NUMBER: _ClassVar[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class TurnRequest(_message.Message):
    __slots__ = ("action", "job", "token", "device", "request")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ATTEND: _ClassVar[TurnRequest.Action]
        ASK: _ClassVar[TurnRequest.Action]
        RELEASE: _ClassVar[TurnRequest.Action]
    ATTEND: TurnRequest.Action
    ASK: TurnRequest.Action
    RELEASE: TurnRequest.Action
    ACTION_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    action: TurnRequest.Action
    job: int
    token: str
    device: str
    request: int
    def __init__(self, action: _Optional[_Union[TurnRequest.Action, str]] = ..., job: _Optional[int] = ..., token: _Optional[str] = ..., device: _Optional[str] = ..., request: _Optional[int] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("number", "request")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    request: int
    def __init__(self, number: _Optional[int] = ..., request: _Optional[int] = ...) -> None: ...

class FromHost(_message.Message):
    __slots__ = ("join", "heartbeat", "held", "resumed", "leave", "report", "calls")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    join: Join
    heartbeat: Heartbeat
    held: Held
    resumed: Resumed
    leave: Leave
    report: Report
    calls: Calls
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., resumed: _Optional[_Union[Resumed, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., calls: _Optional[_Union[Calls, _Mapping]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("step", "steps_left", "stage", "loss", "accuracy", "steps", "compute_ns", "exposed_ns", "bytes", "waiting_ns")
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_LEFT_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_NS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_NS_FIELD_NUMBER: _ClassVar[int]
    step: int
    steps_left: int
    stage: str
    loss: float
    accuracy: float
    steps: int
    compute_ns: int
    exposed_ns: int
    bytes: int
    waiting_ns: int
    def __init__(self, step: _Optional[int] = ..., steps_left: _Optional[int] = ..., stage: _Optional[str] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., steps: _Optional[int] = ..., compute_ns: _Optional[int] = ..., exposed_ns: _Optional[int] = ..., bytes: _Optional[int] = ..., waiting_ns: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("collective", "name", "details")
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    collective: str
    name: str
    details: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, collective: _Optional[str] = ..., name: _Optional[str] = ..., details: _Optional[_Iterable[str]] = ...) -> None: ...

class Calls(_message.Message):
    __slots__ = ("first", "calls", "awaited", "asks")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    first: int
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    awaited: int
    asks: bool
    def __init__(self, first: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., awaited: _Optional[int] = ..., asks: bool = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("job", "token", "generation")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job: int
    token: str
    generation: int
    def __init__(self, job: _Optional[int] = ..., token: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("rounds", "waiting")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    waiting: bool
    def __init__(self, rounds: _Optional[int] = ..., waiting: bool = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("generation", "first_incomplete", "complete", "done")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    first_incomplete: int
    complete: _containers.RepeatedScalarFieldContainer[int]
    done: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, generation: _Optional[int] = ..., first_incomplete: _Optional[int] = ..., complete: _Optional[_Iterable[int]] = ..., done: _Optional[_Iterable[int]] = ...) -> None: ...

class Resumed(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("reason", "calls", "rounds")
    REASON_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    calls: int
    rounds: int
    def __init__(self, reason: _Optional[str] = ..., calls: _Optional[int] = ..., rounds: _Optional[int] = ...) -> None: ...

class ToHost(_message.Message):
    __slots__ = ("joined", "waiting", "worker_plan", "server_plan", "pause", "resume", "abort", "ended", "departures", "ask_calls", "call_report", "traffic_class")
    JOINED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WORKER_PLAN_FIELD_NUMBER: _ClassVar[int]
    SERVER_PLAN_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    DEPARTURES_FIELD_NUMBER: _ClassVar[int]
    ASK_CALLS_FIELD_NUMBER: _ClassVar[int]
    CALL_REPORT_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    joined: Joined
    waiting: Waiting
    worker_plan: WorkerPlan
    server_plan: ServerPlan
    pause: Pause
    resume: Resume
    abort: Abort
    ended: Ended
    departures: Departures
    ask_calls: AskCalls
    call_report: CallReport
    traffic_class: TrafficClass
    def __init__(self, joined: _Optional[_Union[Joined, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ..., worker_plan: _Optional[_Union[WorkerPlan, _Mapping]] = ..., server_plan: _Optional[_Union[ServerPlan, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., departures: _Optional[_Union[Departures, _Mapping]] = ..., ask_calls: _Optional[_Union[AskCalls, _Mapping]] = ..., call_report: _Optional[_Union[CallReport, _Mapping]] = ..., traffic_class: _Optional[_Union[TrafficClass, _Mapping]] = ...) -> None: ...

class TrafficClass(_message.Message):
    __slots__ = ("job", "priority")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    job: int
    priority: int
    def __init__(self, job: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class AskCalls(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CallReport(_message.Message):
    __slots__ = ("text", "speaker")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    text: str
    speaker: int
    def __init__(self, text: _Optional[str] = ..., speaker: _Optional[int] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("host", "address", "heartbeat_ns", "spare", "heartbeats_to", "stripes")
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_NS_FIELD_NUMBER: _ClassVar[int]
    SPARE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_TO_FIELD_NUMBER: _ClassVar[int]
    STRIPES_FIELD_NUMBER: _ClassVar[int]
    host: str
    address: int
    heartbeat_ns: int
    spare: bool
    heartbeats_to: int
    stripes: _containers.RepeatedCompositeFieldContainer[Stripe]
    def __init__(self, host: _Optional[str] = ..., address: _Optional[int] = ..., heartbeat_ns: _Optional[int] = ..., spare: bool = ..., heartbeats_to: _Optional[int] = ..., stripes: _Optional[_Iterable[_Union[Stripe, _Mapping]]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Departure(_message.Message):
    __slots__ = ("rank", "host", "address", "calls")
    RANK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    host: str
    address: int
    calls: int
    def __init__(self, rank: _Optional[int] = ..., host: _Optional[str] = ..., address: _Optional[int] = ..., calls: _Optional[int] = ...) -> None: ...

class Departures(_message.Message):
    __slots__ = ("workers", "final")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Departure]
    final: bool
    def __init__(self, workers: _Optional[_Iterable[_Union[Departure, _Mapping]]] = ..., final: bool = ...) -> None: ...

class Pacing(_message.Message):
    __slots__ = ("window", "hold_ns", "lease_ns", "gap_ns", "round_trip_ns")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    HOLD_NS_FIELD_NUMBER: _ClassVar[int]
    LEASE_NS_FIELD_NUMBER: _ClassVar[int]
    GAP_NS_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_NS_FIELD_NUMBER: _ClassVar[int]
    window: int
    hold_ns: int
    lease_ns: int
    gap_ns: int
    round_trip_ns: int
    def __init__(self, window: _Optional[int] = ..., hold_ns: _Optional[int] = ..., lease_ns: _Optional[int] = ..., gap_ns: _Optional[int] = ..., round_trip_ns: _Optional[int] = ...) -> None: ...

class WorkerPlan(_message.Message):
    __slots__ = ("job", "generation", "rank", "workers", "aggregator", "child_bit", "slots", "window", "lanes", "members", "key", "pacing", "presents", "traffic_class", "prunes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    CHILD_BIT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PACING_FIELD_NUMBER: _ClassVar[int]
    PRESENTS_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    PRUNES_FIELD_NUMBER: _ClassVar[int]
    job: int
    generation: int
    rank: int
    workers: int
    aggregator: int
    child_bit: int
    slots: int
    window: int
    lanes: int
    members: _containers.RepeatedScalarFieldContainer[int]
    key: str
    pacing: Pacing
    presents: bool
    traffic_class: int
    prunes: bool
    def __init__(self, job: _Optional[int] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., workers: _Optional[int] = ..., aggregator: _Optional[int] = ..., child_bit: _Optional[int] = ..., slots: _Optional[int] = ..., window: _Optional[int] = ..., lanes: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., key: _Optional[str] = ..., pacing: _Optional[_Union[Pacing, _Mapping]] = ..., presents: bool = ..., traffic_class: _Optional[int] = ..., prunes: bool = ...) -> None: ...

class Child(_message.Message):
    __slots__ = ("bit", "address", "workers")
    BIT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    bit: int
    address: int
    workers: int
    def __init__(self, bit: _Optional[int] = ..., address: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class ServerPlan(_message.Message):
    __slots__ = ("job", "generation", "slots", "children", "workers", "first_round", "lanes", "members", "key", "traffic_class")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROUND_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    job: int
    generation: int
    slots: int
    children: _containers.RepeatedCompositeFieldContainer[Child]
    workers: int
    first_round: int
    lanes: int
    members: _containers.RepeatedScalarFieldContainer[int]
    key: str
    traffic_class: int
    def __init__(self, job: _Optional[int] = ..., generation: _Optional[int] = ..., slots: _Optional[int] = ..., children: _Optional[_Iterable[_Union[Child, _Mapping]]] = ..., workers: _Optional[int] = ..., first_round: _Optional[int] = ..., lanes: _Optional[int] = ..., members: _Optional[_Iterable[int]] = ..., key: _Optional[str] = ..., traffic_class: _Optional[int] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("job", "generation")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job: int
    generation: int
    def __init__(self, job: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class FinalRound(_message.Message):
    __slots__ = ("round", "holder")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    round: int
    holder: int
    def __init__(self, round: _Optional[int] = ..., holder: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("worker_plan", "server_plan", "final", "again")
    WORKER_PLAN_FIELD_NUMBER: _ClassVar[int]
    SERVER_PLAN_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    worker_plan: WorkerPlan
    server_plan: ServerPlan
    final: _containers.RepeatedCompositeFieldContainer[FinalRound]
    again: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, worker_plan: _Optional[_Union[WorkerPlan, _Mapping]] = ..., server_plan: _Optional[_Union[ServerPlan, _Mapping]] = ..., final: _Optional[_Iterable[_Union[FinalRound, _Mapping]]] = ..., again: _Optional[_Iterable[int]] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: int
    reason: str
    def __init__(self, job: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: int
    reason: str
    def __init__(self, job: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
