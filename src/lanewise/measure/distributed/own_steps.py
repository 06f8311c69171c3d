"""What each rank does by itself in each step, beside the others: a map of ranks and steps."""

from __future__ import annotations

import numpy as np

from lanewise.measure.distributed.late_ranks import Job

__all__ = ["more_in_steps"]


def more_in_steps(job: Job) -> np.ndarray:
    """Own work of a rank in a step more than that of the median rank, ns, shape (ranks, steps); NaN where it has none.

    The n-th compared step of each rank stands in column n. What recording did to a host throughout is taken out, as for
    the rank as a whole.
    """
    columns = max((len(one.contexts[0].time_ns) for one in job.ranks if one.contexts), default=0)
    own = np.full((len(job.ranks), columns), np.nan)
    for row, rank in enumerate(job.ranks):
        if not rank.contexts:
            continue
        time = np.array([one.time_ns for one in rank.contexts], dtype=np.float64)
        on_host = np.array([not one.context.on_device for one in rank.contexts], dtype=bool)
        host, device = time[on_host].sum(axis=0), time[~on_host].sum(axis=0)
        usual = float(np.median(host)) if len(host) else 0.0
        # As the job has it for the rank as a whole, which leaves what is the rank's own as it is.
        scale = float(job.host_ns[row]) / usual if usual else 1.0
        own[row, : time.shape[1]] = host * scale + device
    usual_step = np.array(
        [np.nanmedian(own[:, at]) if np.isfinite(own[:, at]).any() else np.nan for at in range(columns)]
    )
    return own - usual_step
