/* The walk in no time at all, before SimGrid sees anything: whoever gets stuck here would wait for
 * ever there. Of very many steps the first few are walked, since all are alike. */
#include "walk.h"

#include "ty_base.h"

#include <stdio.h>
#include <string.h>

enum { ENOUGH_STEPS = 2 }; /* beyond those that fill a pipe */

/* How far a stream has come. */
typedef struct cursor {
    uint32_t round, index; /* of the instruction it is at */
    bool is_inside;        /* of a collective: it has arrived and waits for the others */
    bool has_ended;
} cursor;

typedef struct dry_run {
    ty_walk *walk;
    uint32_t steps;
    cursor (*cursors)[TY_STREAM_COUNT]; /* [rank] */
    uint32_t *arrivals;                 /* [group] */
    uint32_t *queue;                    /* ring of ranks to look at */
    bool *is_queued;
    uint32_t head, length;
} dry_run;

static void enqueue(dry_run *d, uint32_t rank)
{
    if (d->is_queued[rank])
        return;
    d->is_queued[rank] = true;
    d->queue[(d->head + d->length++) % d->walk->device_count] = rank;
}

static uint32_t step_of(const dry_run *d, uint32_t rank, ty_stream stream)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    const cursor *c = &d->cursors[rank][stream];
    return c->round + self->program->instructions[c->index].lead - self->walkers[stream].lead;
}

/* Moves on to an instruction of the stream that is of a step of the run, or to the end. */
static void settle(const dry_run *d, uint32_t rank, ty_stream stream)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    cursor *c = &d->cursors[rank][stream];

    for (; c->round < d->steps + self->walkers[stream].lead; c->round++, c->index = 0)
        for (; c->index < self->program->instruction_count; c->index++)
            if (self->program->instructions[c->index].stream == stream &&
                step_of(d, rank, stream) < d->steps)
                return;
    c->has_ended = true;
}

static void wake_receivers(dry_run *d, const ty_walk_device *device, const ty_instruction *send)
{
    const uint32_t peer = ty_walk_peer(d->walk, device, send);

    if (d->walk->fold == NULL) {
        enqueue(d, peer);
        return;
    }
    const uint32_t position = ty_plan_stage_of_rank(d->walk->plan, peer / d->walk->width);
    for (uint32_t r = 0; r < d->walk->device_count; r++)
        if (d->walk->devices[r].stage == position)
            enqueue(d, r);
}

static void finish(dry_run *d, uint32_t rank, ty_stream stream)
{
    ty_walk_device *self = &d->walk->devices[rank];
    cursor *c = &d->cursors[rank][stream];
    const ty_instruction *in = &self->program->instructions[c->index];

    self->done[c->index]++;
    if (in->op == TY_OP_SEND)
        wake_receivers(d, self, in);
    c->is_inside = false;
    c->index++;
    settle(d, rank, stream);
    enqueue(d, rank);
}

/* The last member lets all go. */
static void arrive(dry_run *d, uint32_t rank, ty_stream stream)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    const cursor *c = &d->cursors[rank][stream];
    const ty_group *group = ty_walk_group(d->walk, self, &self->program->instructions[c->index]);
    uint32_t *arrivals = &d->arrivals[group - d->walk->groups];

    d->cursors[rank][stream].is_inside = true;
    if (++*arrivals < group->member_count)
        return;
    *arrivals = 0;
    for (uint32_t m = 0; m < group->member_count; m++)
        for (int s = 0; s < TY_STREAM_COUNT; s++) {
            const uint32_t member = group->members[m];
            const cursor *there = &d->cursors[member][s];
            if (there->is_inside &&
                ty_walk_group(d->walk, &d->walk->devices[member],
                              &d->walk->devices[member].program->instructions[there->index]) ==
                    group)
                finish(d, member, (ty_stream)s);
        }
}

/* The own instruction that a stream's next one waits for, or TY_NO_INSTRUCTION. */
static uint32_t awaited(const dry_run *d, uint32_t rank, ty_stream stream)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    const ty_instruction *in = &self->program->instructions[d->cursors[rank][stream].index];

    for (uint32_t w = 0; w < in->wait_count; w++)
        if (self->done[in->waits[w]] <= step_of(d, rank, stream))
            return in->waits[w];
    return TY_NO_INSTRUCTION;
}

/* Takes instructions of a stream as long as there is nothing to wait for. */
static void go_on(dry_run *d, uint32_t rank, ty_stream stream)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    const cursor *c = &d->cursors[rank][stream];

    while (!c->has_ended && !c->is_inside && awaited(d, rank, stream) == TY_NO_INSTRUCTION) {
        const ty_instruction *in = &self->program->instructions[c->index];
        if (in->op == TY_OP_RECEIVE && *self->arrival[c->index] <= step_of(d, rank, stream))
            return;
        if (in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER)
            arrive(d, rank, stream);
        else
            finish(d, rank, stream);
    }
}

/* ---- Who is stuck -------------------------------------------------------------------------- */

/* "rank 3 at instruction 5 (receive) of step 0". */
static void name_place(const dry_run *d, uint32_t rank, ty_stream stream, char *text, size_t room)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    const cursor *c = &d->cursors[rank][stream];

    if (c->has_ended)
        snprintf(text, room, "rank %u, whose %s stream is at its end", self->rank,
                 ty_stream_name(stream));
    else
        snprintf(text, room, "rank %u at instruction %u (%s) of step %u", self->rank, c->index,
                 ty_op_name(self->program->instructions[c->index].op), step_of(d, rank, stream));
}

/* What a stuck stream waits for: another stream, of its own rank or of a partner. */
static void partner_of(const dry_run *d, uint32_t rank, ty_stream stream, uint32_t *other,
                       ty_stream *other_stream)
{
    const ty_walk_device *self = &d->walk->devices[rank];
    const ty_instruction *in = &self->program->instructions[d->cursors[rank][stream].index];
    const uint32_t own = awaited(d, rank, stream);

    *other = rank;
    if (own != TY_NO_INSTRUCTION) {
        *other_stream = self->program->instructions[own].stream;
        return;
    }
    *other_stream = stream;
    if (in->op == TY_OP_RECEIVE) {
        *other = ty_walk_index(d->walk, ty_walk_peer(d->walk, self, in));
        *other_stream = TY_STREAM_SEND;
        return;
    }
    const ty_group *group = ty_walk_group(d->walk, self, in);
    for (uint32_t m = 0; m < group->member_count; m++) {
        const ty_walk_device *member = &d->walk->devices[group->members[m]];
        const cursor *there = &d->cursors[group->members[m]][stream];
        if (there->is_inside &&
            ty_walk_group(d->walk, member, &member->program->instructions[there->index]) == group)
            continue;
        *other = group->members[m]; /* the first that has not come */
        return;
    }
}

/* Follows who waits for whom until somebody has nothing to wait for, or round the circle. */
static ty_status explain(const dry_run *d, uint32_t rank, ty_stream stream, ty_error *error)
{
    enum { LONGEST_CHAIN = 64 };
    char at[80], partner[80];
    uint32_t other = rank;
    ty_stream other_stream = stream;

    for (int i = 0; i < LONGEST_CHAIN; i++) {
        partner_of(d, rank, stream, &other, &other_stream);
        if (d->cursors[other][other_stream].has_ended || (other == rank && other_stream == stream))
            break;
        if (i + 1 < LONGEST_CHAIN) {
            rank = other;
            stream = other_stream;
        }
    }
    /* A rank's own streams are no news: the next one that waits for another rank is. */
    for (int s = 0; s < TY_STREAM_COUNT && other == rank; s++) {
        partner_of(d, rank, stream, &other, &other_stream);
        if (other == rank && d->cursors[rank][other_stream].has_ended)
            break;
        if (other == rank)
            stream = other_stream;
    }
    name_place(d, rank, stream, at, sizeof at);
    name_place(d, other, other_stream, partner, sizeof partner);
    return ty_fail(error, TY_EINVAL, "deadlock: %s waits for %s", at, partner);
}

static ty_status check_ends(const dry_run *d, ty_error *error)
{
    for (uint32_t r = 0; r < d->walk->device_count; r++)
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            if (!d->cursors[r][s].has_ended)
                return explain(d, r, (ty_stream)s, error);
    return TY_OK;
}

static void run(dry_run *d)
{
    for (uint32_t r = 0; r < d->walk->device_count; r++) {
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            settle(d, r, (ty_stream)s);
        enqueue(d, r);
    }
    while (d->length > 0) {
        const uint32_t rank = d->queue[d->head];
        d->head = (d->head + 1) % d->walk->device_count;
        d->length--;
        d->is_queued[rank] = false;
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            go_on(d, rank, (ty_stream)s);
    }
}

ty_status ty_walk_check(ty_walk *walk, ty_error *error)
{
    ty_status status;
    uint32_t lead = 0;
    dry_run d = {.walk = walk};

    d.cursors = ty_alloc(walk->device_count, sizeof *d.cursors);
    d.arrivals = ty_alloc(walk->group_count, sizeof *d.arrivals);
    d.queue = ty_alloc(walk->device_count, sizeof *d.queue);
    d.is_queued = ty_alloc(walk->device_count, sizeof *d.is_queued);
    for (uint32_t r = 0; r < walk->device_count; r++)
        lead = walk->devices[r].walkers[0].lead > lead ? walk->devices[r].walkers[0].lead : lead;
    d.steps = walk->steps < lead + ENOUGH_STEPS ? walk->steps : lead + ENOUGH_STEPS;
    if (d.cursors == NULL || d.arrivals == NULL || d.queue == NULL || d.is_queued == NULL) {
        status = ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
    } else {
        run(&d);
        status = check_ends(&d, error);
    }
    for (uint32_t r = 0; r < walk->device_count; r++)
        memset(walk->devices[r].done, 0,
               walk->devices[r].program->instruction_count * sizeof *walk->devices[r].done);
    ty_free(d.cursors);
    ty_free(d.arrivals);
    ty_free(d.queue);
    ty_free(d.is_queued);
    return status;
}
