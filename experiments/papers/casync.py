"""CaSync: compression and communication as tasks that overlap."""

from __future__ import annotations

from typing import Final

from ..repetition.paper import Contender, Paper
from ..repetition.synchronisation_schedules import SYNCHRONISATION, synchronisation_times

DESCRIPTION: Final = Paper(
    name="casync",
    title="CaSync: encoding, sums and decoding as tasks that overlap",
    published="Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN Training (HiPress), "
    "SOSP 2021",
    headline="63.5 % (VGG19) and 59.2 % (BERT-base) less synchronisation time than raw sums, 16 GPUs over 100 Gbit/s",
    system=Contender("schedule", "packed(8), scheduled, summed in the switch"),
    baselines=(
        Contender("encode-all", "packed(8): encode all, send all, decode all"),
        Contender("planned", "packed(8) or raw, as planned for the schedule", strong=True),
        Contender("packed15", "packed(15), scheduled: the 16-bit sum in the switch", strong=True),
        Contender("float32", "float32, summed in the switch", strong=True),
        Contender("onebit-server", "onebit of CompLL by servers, scheduled (HiPress' own)", strong=True),
        Contender("onebit-ring", "onebit of CompLL by a ring, scheduled (HiPress' own)"),
    ),
    figures=(SYNCHRONISATION,),
    regime="the models' gradient sizes, all there at the start; 16 workers; links of one rate with 20 µs of latency; "
    "codecs in processor time of one core; queues of tasks in virtual time, without packets",
    run_files=(),
    seeds=3,
    findings="Where sending takes as long as coding, at 2.3 Gbit/s here, the schedule takes 43 to 49 % less time than "
    "encode-all, and 71 to 74 % less than raw sums; the paper's system saves 63.5 and 59.2 % of raw sums. The 16-bit "
    "sum, scheduled alike, takes twice as long at 1 Gbit/s and 1.8 to 1.9 times as long at that rate. At 10 Gbit/s "
    "coding decides, and the schedule of all compressed takes 10 % (VGG19) and 16 % (BERT-base) longer than raw sums. "
    "The plan of the schedule, which compresses a part of the gradients, is never slower than either, and takes 22 % "
    "and 40 % less time than raw sums there. HiPress' own way, codes of one bit by servers, takes 62 % and 27 % less "
    "time than the schedule at 1 Gbit/s: its codes are an eighth as long, and lose far more. On BERT-base's many "
    "small gradients it takes a third more at the higher rates, since each call of a program has a fixed cost and is "
    "decoded 16 times. Rings code at every hop and are slower than servers everywhere. Packets, the backward pass and "
    "steps to an accuracy are not in these figures.",
    measure=synchronisation_times,
)
