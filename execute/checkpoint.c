/* Checkpoints: when all ranks' files are there, latest.json names them. */
#include "checkpoint_parts.h"
#include "interpreter_state.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static ty_status path_check(const char *directory, ty_error *error)
{
    const size_t room = 64; /* of what is added to it */

    if (strlen(directory) > CHECKPOINT_PATH_SIZE - room)
        return ty_fail(error, TY_EINVAL, "%.64s...: too long a path", directory);
    return TY_OK;
}

/* Where a checkpoint of now goes. */
static ty_status place_make(const ty_interpreter *in, ty_checkpoint_place *out, ty_error *error)
{
    const uint64_t steps = in->controls_done - in->origin_step;

    *out = (ty_checkpoint_place){.step = in->controls_done,
                                 .samples =
                                     in->origin_samples + steps * in->options.plan->global_batch,
                                 .rank_count = in->options.transport->size,
                                 .source = in->options.transport->rank};
    return ty_plan_digest(in->options.plan, &out->plan, error);
}

/* What was left by a run that ended while it wrote or removed one: all but the newest. */
static void others_remove(const ty_interpreter *in, const char *directory, uint32_t newest)
{
    DIR *folder = opendir(directory);
    const struct dirent *entry;
    uint32_t step;
    char after;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (sscanf(entry->d_name, "step-%" SCNu32 "%c", &step, &after) == 1 && step != newest)
            checkpoint_rank_remove(in, directory, step);
    if (folder != NULL)
        closedir(folder);
}

ty_status ty_checkpoint_save(ty_interpreter *in, const char *directory, uint32_t replaced,
                             ty_error *error)
{
    ty_transport *transport = in->options.transport;
    ty_checkpoint_place place;
    ty_status status = path_check(directory, error);

    if (status == TY_OK)
        status = place_make(in, &place, error);
    if (status == TY_OK)
        status = checkpoint_rank_save(in, directory, &place, error);
    status = ty_transport_agree(transport, status, error);
    if (status == TY_OK) {
        if (transport->rank == 0)
            status = checkpoint_latest_write(in->options.plan, directory, &place, error);
        status = ty_transport_agree(transport, status, error);
    }
    if (status != TY_OK)
        checkpoint_rank_remove(in, directory, in->controls_done);
    else if (replaced != in->controls_done)
        checkpoint_rank_remove(in, directory, replaced);
    return status;
}

/* Where the interpreter would be after as many steps. */
static void step_set(ty_interpreter *in, uint32_t step)
{
    uint32_t i;

    in->controls_done = in->steps_done = in->target = step;
    for (i = 0; i < in->program->instruction_count; i++)
        in->done[i] = step;
    for (i = 0; i < in->held_count; i++) {
        in->held[i].bound_count = (uint64_t)step * in->local_micro_batches;
        if (in->held[i].version_count > 1)
            in->options.backend->select(in->held[i].device, step % in->held[i].version_count);
    }
}

ty_status ty_checkpoint_load(ty_interpreter *in, const char *directory,
                             const ty_checkpoint_place *place, ty_error *error)
{
    ty_status status = path_check(directory, error);

    if (status != TY_OK)
        return status;
    step_set(in, place->step);
    in->origin_step = place->step;
    in->origin_samples = place->samples;
    in->origin_ranks = place->rank_count;
    status = checkpoint_rank_load(in, directory, place, error);
    if (status == TY_OK)
        others_remove(in, directory, place->step);
    return status;
}
