"""The scheduler, its KV blocks and its sequences: pure decisions on numbers, without torch, I/O or clock.

Read in this order:

    sequence         tokens and blocks of a request; sampling, constraint, noise: how tokens are drawn
    step             what one forward pass computes, and its results
    scheduler        adds, schedules, completes and ends sequences; scheduler_config: its limits;
                     chunks: the part of a step that each running sequence gets
    scheduler_state  the sequences that run or wait; waiting_queue, priority_list: in which order
    kv_cache         cache: block tables and prefixes; blocks, host_tier: the blocks on the device and in
                     host memory; offload_policy: whether one is copied between the two or computed again
    prefill_budget   how many prompt tokens a step may have
    speculation      planner: which sequences get drafts; draft_length: how many pay off, by durations
                     (linear_fit); drafters: where they come from (drafter: their interface)
    in_flight_steps  steps that are scheduled before the last one is completed
    stop_check       when a sequence ends; events, stats, errors: what the caller learns
"""
