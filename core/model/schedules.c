/* The table of schedules. Sources: GPipe (Huang et al., 2019), PipeDream (Narayanan et al., 2019),
 * PipeDream-2BW (Narayanan et al., 2021, section 3.1), interleaved 1F1B (Narayanan et al.,
 * "Efficient large-scale language model training", 2021), zero bubble (Qi et al., 2024). */
#include "ty_plan.h"

#include <stddef.h>

enum { MOST_ZERO = 3 };

static const ty_schedule_row rows[TY_SCHEDULE_COUNT] = {
    [TY_GPIPE] = {.name = "gpipe",
                  .torchtitan = "GPipe",
                  .is_usual = true,
                  .has_full_in_flight = true,
                  .most_zero = MOST_ZERO,
                  .warmup_times = 1},
    [TY_ONE_F_ONE_B] = {.name = "1f1b",
                        .megatron = "1F1B",
                        .torchtitan = "1F1B",
                        .is_usual = true,
                        .most_zero = MOST_ZERO,
                        .warmup_times = 1},
    [TY_INTERLEAVED] = {.name = "interleaved",
                        .megatron = "interleaved 1F1B",
                        .torchtitan = "Interleaved1F1B",
                        .is_interleaved = true,
                        .most_zero = MOST_ZERO,
                        .warmup_times = 1},
    [TY_ZERO_BUBBLE] = {.name = "zb-h1",
                        .needs_pipeline = true,
                        .splits_backward = true,
                        .warmup_times = 1},
    [TY_ZERO_BUBBLE_2P] = {.name = "zb-2p",
                           .needs_pipeline = true,
                           .splits_backward = true,
                           .warmup_times = 2},
    [TY_PIPEDREAM] = {.name = "pipedream",
                      .needs_pipeline = true,
                      .is_asynchronous = true,
                      .versions = TY_WEIGHTS_IN_FLIGHT,
                      .warmup_times = 1},
    [TY_PIPEDREAM_2BW] = {.name = "pipedream-2bw",
                          .needs_pipeline = true,
                          .is_asynchronous = true,
                          .versions = TY_WEIGHTS_DOUBLE,
                          .least_per_stage = 1,
                          .warmup_times = 1},
};

const ty_schedule_row *ty_schedule_at(ty_schedule schedule)
{
    return &rows[(unsigned)schedule < TY_SCHEDULE_COUNT ? schedule : TY_ONE_F_ONE_B];
}

const char *ty_schedule_name(ty_schedule schedule)
{
    return (unsigned)schedule < TY_SCHEDULE_COUNT ? rows[schedule].name : "unknown";
}

ty_schedule ty_schedule_default(bool is_interleaved)
{
    return is_interleaved ? TY_INTERLEAVED : TY_ONE_F_ONE_B;
}

bool ty_schedule_is_plain(ty_schedule schedule)
{
    const ty_schedule_row *row = ty_schedule_at(schedule);

    return !row->is_asynchronous && !row->is_interleaved && !row->splits_backward;
}

uint32_t ty_schedule_stashed_versions(ty_schedule schedule, uint32_t lead)
{
    const ty_weight_versions versions = ty_schedule_at(schedule)->versions;

    return versions == TY_WEIGHTS_DOUBLE ? 1 : versions == TY_WEIGHTS_IN_FLIGHT ? lead : 0;
}

ty_schedule_problem ty_schedule_check(ty_schedule schedule, const ty_schedule_use *use)
{
    const ty_schedule_row *row = ty_schedule_at(schedule);

    if (row->is_interleaved != (use->virtual_stages > 1))
        return TY_SCHEDULE_VIRTUAL_STAGES;
    if (row->is_interleaved && use->micro_batches % use->pipeline_size != 0)
        return TY_SCHEDULE_MULTIPLE;
    if (use->micro_batches < row->least_per_stage * use->pipeline_size)
        return TY_SCHEDULE_TOO_FEW;
    if (row->splits_backward && use->has_segments)
        return TY_SCHEDULE_SEGMENTS;
    return use->zero > row->most_zero ? TY_SCHEDULE_ZERO : TY_SCHEDULE_SUITS;
}
