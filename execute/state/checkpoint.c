/* Checkpoints: once all ranks' files exist, checkpoint.json names them. */
#include "checkpoint_parts.h"
#include "interpreter_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { DIGEST_TAG = 8 };

static ty_status path_check(const char *directory, ty_error *error)
{
    const size_t room = 64; /* for the parts added to it */

    if (strlen(directory) > CHECKPOINT_PATH_SIZE - room)
        return ty_fail(error, TY_EINVAL, "%.64s...: too long a path", directory);
    return TY_OK;
}

/* The place of a checkpoint of the current state. */
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

/* ---- One run at a time ----------------------------------------------------------------------- */

/* Removes files of a run that was killed while it wrote latest.json or result.json. */
static void temporaries_remove(const char *directory)
{
    DIR *folder = opendir(directory);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (strncmp(entry->d_name, ".trainyard-", 11) == 0 && strstr(entry->d_name, ".tmp") != NULL)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder != NULL)
        closedir(folder);
}

/* The holder of the lock, as it wrote itself. */
static void holder_read(int file, char out[64])
{
    const ssize_t length = pread(file, out, 63, 0);

    out[length > 0 ? length : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static void holder_write(int file)
{
    char host[40] = "", line[64];
    int length;

    gethostname(host, sizeof host - 1);
    length = snprintf(line, sizeof line, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(file, 0) != 0 || pwrite(file, line, (size_t)length, 0) != length)
        return; /* it is only information for users */
}

ty_status ty_checkpoint_lock(const char *directory, int *lock, ty_error *error)
{
    char path[CHECKPOINT_PATH_SIZE], holder[64];
    int file;
    ty_status status;

    TY_CHECK(path_check(directory, error), status, done);
    TY_CHECK(ty_directory_make(directory, error), status, done);
    snprintf(path, sizeof path, "%s/.lock", directory);
    file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0)
        return ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        holder_read(file, holder);
        close(file);
        return ty_fail(error, TY_EIO, "%s: another run is using this folder: %s", directory,
                       holder[0] != '\0' ? holder : "it does not say which");
    } /* a file system without locks excludes no run */
    holder_write(file);
    temporaries_remove(directory);
    *lock = file;
    snprintf(path, sizeof path, "%s/latest.json", directory);
    status = ty_file_try(path, error);
    if (status != TY_OK)
        close(file);
done:
    return status;
}

void ty_checkpoint_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

/* ---- The newest intact checkpoint ------------------------------------------------------------ */

ty_status ty_checkpoint_agree(ty_checkpoint_query query, ty_transport *transport,
                              ty_checkpoint_place *out, ty_error *damage, ty_error *error)
{
    uint32_t *found = ty_alloc(transport->size, sizeof *found), least, largest;
    ty_error own = {0};
    ty_status status = found != NULL ? path_check(query.directory, error)
                                     : ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint");

    query.most = UINT32_MAX;
    query.rank = transport->rank;
    do { /* each time with an older one, so it ends */
        ty_checkpoint_place_clear(out);
        if (status == TY_OK)
            status = ty_checkpoint_find(&query, out, &own, error);
        TY_CHECK(ty_transport_agree(transport, status, error), status, done);
        found[transport->rank] = out->step;
        TY_CHECK(ty_collective_run(transport,
                                   &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                            .member_count = transport->size,
                                                            .data = found,
                                                            .count = sizeof *found,
                                                            .element = TY_ELEMENT_BYTE,
                                                            .tag = DIGEST_TAG},
                                   error),
                 status, done);
        least = largest = found[0];
        for (uint32_t r = 1; r < transport->size; r++) {
            least = found[r] < least ? found[r] : least;
            largest = found[r] > largest ? found[r] : largest;
        }
        query.most = least;
        if (least == 0 && largest > 0) /* never trains from the start over a checkpoint */
            status = ty_fail(error, TY_EIO,
                             "%s: some ranks find a checkpoint of step %u and others none: is the "
                             "folder shared by all hosts?",
                             query.directory, largest);
    } while (status == TY_OK && least < largest);
    if (status == TY_OK && ty_transport_agree(transport, own.status, &own) != TY_OK)
        *damage = own;
done:
    ty_free(found);
    return status;
}

/* Removes newer checkpoints, which are damaged or incomplete, and all but `kept` others. */
static void others_remove(const ty_interpreter *in, const char *directory, uint32_t newest,
                          uint32_t kept)
{
    uint32_t *steps, count;

    if (checkpoint_steps(directory, &steps, &count, NULL) != TY_OK)
        return;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_whole = steps[i] == newest ||
                              (steps[i] < newest && !checkpoint_is_incomplete(directory, steps[i]));
        if (is_whole && kept > 0)
            kept--;
        else
            checkpoint_rank_remove(in, directory, steps[i]);
    }
    ty_free(steps);
}

ty_status ty_checkpoint_save(ty_interpreter *in, const char *directory, uint32_t kept,
                             ty_error *error)
{
    ty_transport *transport = in->options.transport;
    ty_digest *files = ty_alloc(transport->size, sizeof *files);
    ty_checkpoint_place place;
    ty_status status = files != NULL ? path_check(directory, error)
                                     : ty_fail(error, TY_ENOMEM, "out of memory for a checkpoint");

    if (status == TY_OK)
        status = place_make(in, &place, error);
    if (status == TY_OK)
        status = checkpoint_rank_save(in, directory, &place, &files[transport->rank], error);
    status = ty_transport_agree(transport, status, error);
    if (status == TY_OK)
        status = ty_collective_run(transport,
                                   &(ty_collective_options){.kind = TY_ALL_GATHER,
                                                            .member_count = transport->size,
                                                            .data = files,
                                                            .count = sizeof *files,
                                                            .element = TY_ELEMENT_BYTE,
                                                            .tag = DIGEST_TAG},
                                   error);
    if (status == TY_OK) {
        if (transport->rank == 0)
            status = checkpoint_latest_write(in->options.plan, directory, &place, files, error);
        status = ty_transport_agree(transport, status, error);
    }
    ty_free(files);
    if (status != TY_OK)
        checkpoint_rank_remove(in, directory, in->controls_done);
    else
        others_remove(in, directory, in->controls_done, kept);
    return status;
}

/* Sets the interpreter's state as after that many steps. */
static void step_set(ty_interpreter *in, uint32_t step)
{
    in->controls_done = in->steps_done = in->target = step;
    for (uint32_t i = 0; i < in->program->instruction_count; i++)
        in->done[i] = step;
    for (uint32_t i = 0; i < in->virtual_stage_count; i++) {
        in->virtual_stages[i].bound_count = (uint64_t)step * in->local_micro_batches;
        if (in->virtual_stages[i].version_count > 1)
            in->options.backend->select(in->virtual_stages[i].device,
                                        step % in->virtual_stages[i].version_count);
    }
}

ty_status ty_checkpoint_load(ty_interpreter *in, const char *directory,
                             const ty_checkpoint_place *place, uint32_t kept, ty_error *error)
{
    ty_status status = path_check(directory, error);

    if (status != TY_OK)
        return status;
    step_set(in, place->step);
    in->origin_step = place->step;
    in->origin_samples = place->samples;
    in->origin_ranks = place->rank_count;
    status = place->stride > 0 ? checkpoint_tensors_load(in, directory, place, error)
                               : checkpoint_rank_load(in, directory, place, error);
    if (status == TY_OK)
        others_remove(in, directory, place->step, kept);
    return status;
}
