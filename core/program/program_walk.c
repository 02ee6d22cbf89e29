/*
 * The proof of a program, second half: simulates the streams of all stage replicas without time. A
 * blocked stage replica waits for another blocked one; following these waits leads to a cycle,
 * which the message reports.
 *
 * The state of a stage replica is one number per stream, because streams run in order. A stage
 * replica is processed again when a send to it or one of its collectives ends, so the walk is
 * linear in the events. If steps overlap, the walk covers enough of them for warm-up and cool-down;
 * a place in a stream then counts rounds times the stream's length.
 *
 * Interchangeable replicas and ranks are walked once: with equal replicas in all stages,
 * micro-batch m is only on the m-th replicas, and collectives join interchangeable stage replicas
 * at the same places.
 */
#include "program_check.h"

#include "ty_base.h"

#include <stdio.h>

typedef struct walker {
    const program_checker *c;
    uint32_t stage_replica_count;      /* in the walk */
    uint32_t steps, lead;              /* of the walk; rounds before the first step's end */
    bool is_folded;                    /* one replica stands for all */
    uint32_t *stage_of;                /* [stage replica]: pipeline rank */
    uint32_t *first_replicas;          /* [pipeline rank] */
    uint32_t (*done)[TY_STREAM_COUNT]; /* [stage replica]: completed instructions per stream */
    bool *has_arrived;  /* [stage replica]: waits inside the collective at the head of its stream */
    uint32_t *arrivals; /* [bucket]: members that have arrived */
    uint32_t *queue;    /* ring of stage replicas to process */
    bool *is_queued;    /* [stage replica] */
    uint32_t queue_head, queue_length;
} walker;

/* A stream of a stage replica. */
typedef struct place {
    uint32_t stage_replica;
    ty_stream stream;
} place;

static const stage_facts *facts_of(const walker *w, uint32_t stage_replica)
{
    return &w->c->stages[w->stage_of[stage_replica]];
}

static uint32_t replicas_of(const walker *w, uint32_t pipeline_rank)
{
    return w->is_folded ? 1 : w->c->plan->stages[pipeline_rank].replicas;
}

static bool is_finished(const walker *w, uint32_t stage_replica, ty_stream stream)
{
    return w->done[stage_replica][stream] ==
           (w->lead + w->steps) * facts_of(w, stage_replica)->stream_lengths[stream];
}

/* Index of the instruction a stream has reached; the stream is not finished. */
static uint32_t head_index(const walker *w, place at)
{
    const stage_facts *f = facts_of(w, at.stage_replica);
    return f
        ->streams[at.stream][w->done[at.stage_replica][at.stream] % f->stream_lengths[at.stream]];
}

static const ty_instruction *instruction_of(const walker *w, uint32_t stage_replica, uint32_t index)
{
    return &w->c->program->stages[w->stage_of[stage_replica]].instructions[index];
}

/* The step of the head of a stream, counted from `lead`. */
static uint32_t head_step(const walker *w, place at)
{
    const uint32_t round = w->done[at.stage_replica][at.stream] /
                           facts_of(w, at.stage_replica)->stream_lengths[at.stream];
    return round + instruction_of(w, at.stage_replica, head_index(w, at))->lead;
}

/* Whether an instruction is done for a step. */
static bool is_done(const walker *w, uint32_t stage_replica, uint32_t index, uint32_t step)
{
    const stage_facts *f = facts_of(w, stage_replica);
    const ty_instruction *in = instruction_of(w, stage_replica, index);
    return (step - in->lead) * f->stream_lengths[in->stream] + f->order[index] <
           w->done[stage_replica][in->stream];
}

static uint32_t pipeline_rank_of(const walker *w, uint32_t stage)
{
    return stage % w->c->pipeline_size;
}

static uint32_t global_micro_batch(const walker *w, uint32_t stage_replica,
                                   const ty_instruction *in)
{
    const uint32_t pipeline_rank = w->stage_of[stage_replica];
    return in->micro_batch * replicas_of(w, pipeline_rank) +
           (stage_replica - w->first_replicas[pipeline_rank]);
}

static uint32_t peer_of(const walker *w, uint32_t stage_replica, const ty_instruction *in)
{
    const uint32_t peer = pipeline_rank_of(w, in->peer_stage);
    return w->first_replicas[peer] +
           global_micro_batch(w, stage_replica, in) % replicas_of(w, peer);
}

/* The matching send of a receive of `stage_replica`: an instruction of its peer. */
static uint32_t send_of(const walker *w, uint32_t stage_replica, const ty_instruction *receive)
{
    const uint32_t replicas = replicas_of(w, pipeline_rank_of(w, receive->peer_stage));
    return ty_program_pass(w->c, receive->peer_stage,
                           global_micro_batch(w, stage_replica, receive) / replicas)
        ->sends[receive->direction];
}

static void enqueue(walker *w, uint32_t stage_replica)
{
    if (w->is_queued[stage_replica])
        return;
    w->is_queued[stage_replica] = true;
    w->queue[(w->queue_head + w->queue_length) % w->stage_replica_count] = stage_replica;
    w->queue_length++;
}

static uint32_t dequeue(walker *w)
{
    uint32_t stage_replica = w->queue[w->queue_head];
    w->queue_head = (w->queue_head + 1) % w->stage_replica_count;
    w->queue_length--;
    w->is_queued[stage_replica] = false;
    return stage_replica;
}

/* ---- Walking ------------------------------------------------------------------------------- */

/* The members of a bucket in the walk, and the n-th of them. */
static uint32_t member_count(const walker *w, const ty_bucket *bucket)
{
    uint32_t count = replicas_of(w, pipeline_rank_of(w, bucket->stage));
    if (bucket->tied_stage != TY_NO_STAGE)
        count += replicas_of(w, pipeline_rank_of(w, bucket->tied_stage));
    return count;
}

static uint32_t member_at(const walker *w, const ty_bucket *bucket, uint32_t n)
{
    const uint32_t own = pipeline_rank_of(w, bucket->stage), replicas = replicas_of(w, own);
    return n < replicas ? w->first_replicas[own] + n
                        : w->first_replicas[pipeline_rank_of(w, bucket->tied_stage)] + n - replicas;
}

/* A stage replica has reached a collective; the last member to do so ends it for all. */
static bool arrive(walker *w, uint32_t stage_replica, uint32_t index)
{
    const ty_bucket *bucket = &w->c->plan->buckets[index];
    const uint32_t members = member_count(w, bucket);

    if (w->has_arrived[stage_replica])
        return false;
    w->has_arrived[stage_replica] = true;
    if (++w->arrivals[index] < members)
        return false;
    w->arrivals[index] = 0; /* for the next phase */
    for (uint32_t n = 0; n < members; n++) {
        uint32_t member = member_at(w, bucket, n);
        w->has_arrived[member] = false;
        w->done[member][TY_STREAM_COLLECTIVE]++;
        if (member != stage_replica)
            enqueue(w, member);
    }
    return true;
}

/* Ends the instruction at the head of a stream if all its waits are done. */
static bool advance(walker *w, place at)
{
    const ty_instruction *in;
    uint32_t step;

    if (is_finished(w, at.stage_replica, at.stream))
        return false;
    in = instruction_of(w, at.stage_replica, head_index(w, at));
    step = head_step(w, at);
    if (step >= w->lead && step < w->lead + w->steps) {
        for (uint32_t i = 0; i < in->wait_count; i++)
            if (!is_done(w, at.stage_replica, in->waits[i], step))
                return false;
        if (in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER)
            return arrive(w, at.stage_replica, in->bucket);
        if (in->op == TY_OP_RECEIVE &&
            !is_done(w, peer_of(w, at.stage_replica, in), send_of(w, at.stage_replica, in), step))
            return false;
    }
    w->done[at.stage_replica][at.stream]++;
    if (in->op == TY_OP_SEND)
        enqueue(w, peer_of(w, at.stage_replica, in));
    return true;
}

static void walk_replica(walker *w, uint32_t stage_replica)
{
    bool has_moved;
    do {
        has_moved = false;
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            while (advance(w, (place){stage_replica, (ty_stream)s}))
                has_moved = true;
    } while (has_moved);
}

/* ---- Deadlock ------------------------------------------------------------------------------ */

/* The stream that the head of a blocked stream waits for; it is blocked as well. */
static place waits_for(const walker *w, place at)
{
    const ty_instruction *in = instruction_of(w, at.stage_replica, head_index(w, at));
    const ty_bucket *bucket;
    uint32_t n = 0;

    for (uint32_t i = 0; i < in->wait_count; i++)
        if (!is_done(w, at.stage_replica, in->waits[i], head_step(w, at)))
            return (place){at.stage_replica,
                           instruction_of(w, at.stage_replica, in->waits[i])->stream};
    if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
        return (place){peer_of(w, at.stage_replica, in), TY_STREAM_SEND};
    bucket = &w->c->plan->buckets[in->bucket];
    for (;; n++) {
        place member = {member_at(w, bucket, n), TY_STREAM_COLLECTIVE};
        const ty_instruction *head;
        if (!w->has_arrived[member.stage_replica])
            return member;
        head = instruction_of(w, member.stage_replica, head_index(w, member));
        if (head->bucket != in->bucket || head->phase != in->phase)
            return member;
    }
}

/* The plan's number of a stage replica in the walk. */
static uint32_t number_of(const walker *w, uint32_t stage_replica)
{
    const uint32_t pipeline_rank = w->stage_of[stage_replica];
    return ty_plan_first_replica(w->c->plan, pipeline_rank) + stage_replica -
           w->first_replicas[pipeline_rank];
}

static ty_status report_deadlock(const walker *w, place start)
{
    place at = start, worst, first;
    char waiting[160], awaited[160];
    uint32_t index, other;

    /* More steps than there are streams end inside the cycle. */
    for (uint64_t i = 0; i < (uint64_t)w->stage_replica_count * TY_STREAM_COUNT; i++)
        at = waits_for(w, at);
    /* A stage replica cannot wait only for itself, because its waits are earlier instructions:
     * somewhere in the cycle one waits for another. Report the lowest such stage replica. */
    worst = first = at;
    do {
        place next = waits_for(w, at);
        if (next.stage_replica != at.stage_replica &&
            (at.stage_replica < worst.stage_replica ||
             waits_for(w, worst).stage_replica == worst.stage_replica))
            worst = at;
        at = next;
    } while (at.stage_replica != first.stage_replica || at.stream != first.stream);

    index = head_index(w, worst);
    at = waits_for(w, worst);
    other = head_index(w, at);
    ty_instruction_describe(instruction_of(w, worst.stage_replica, index), waiting, sizeof waiting);
    ty_instruction_describe(instruction_of(w, at.stage_replica, other), awaited, sizeof awaited);
    return ty_fail(
        w->c->error, TY_EPARSE,
        "%s/stages/%u/instructions/%u: deadlock: stage replica %u (stage %u) is stuck at the %s "
        "and waits for stage replica %u (stage %u), which is stuck at instruction %u, the %s",
        w->c->place, w->stage_of[worst.stage_replica], index, number_of(w, worst.stage_replica),
        w->stage_of[worst.stage_replica], waiting, number_of(w, at.stage_replica),
        w->stage_of[at.stage_replica], other, awaited);
}

/* Equal replicas in all stages, so replica q of a stage communicates only with replica q of
 * another. */
static bool has_equal_replicas(const ty_plan *plan)
{
    for (uint32_t s = 1; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[0].replicas)
            return false;
    return true;
}

static ty_status walker_open(walker *w)
{
    const program_checker *c = w->c;

    w->is_folded = has_equal_replicas(c->plan);
    for (uint32_t p = 0; p < c->pipeline_size; p++) {
        w->stage_replica_count += replicas_of(w, p);
        if (c->stages[p].lead > w->lead)
            w->lead = c->stages[p].lead;
    }
    w->steps = w->lead > 0 ? w->lead + 2 : 1;
    w->stage_of = ty_alloc(w->stage_replica_count, sizeof *w->stage_of);
    w->first_replicas = ty_alloc(c->pipeline_size, sizeof *w->first_replicas);
    w->done = ty_alloc(w->stage_replica_count, sizeof *w->done);
    w->has_arrived = ty_alloc(w->stage_replica_count, sizeof *w->has_arrived);
    w->arrivals = ty_alloc(c->plan->bucket_count, sizeof *w->arrivals);
    w->queue = ty_alloc(w->stage_replica_count, sizeof *w->queue);
    w->is_queued = ty_alloc(w->stage_replica_count, sizeof *w->is_queued);
    TY_TRY(ty_check_memory(w->stage_of != NULL && w->first_replicas != NULL && w->done != NULL &&
                               w->has_arrived != NULL && w->arrivals != NULL && w->queue != NULL &&
                               w->is_queued != NULL,
                           c->error));
    for (uint32_t p = 0, stage_replica = 0; p < c->pipeline_size; p++) {
        w->first_replicas[p] = stage_replica;
        for (uint32_t q = 0; q < replicas_of(w, p); q++)
            w->stage_of[stage_replica++] = p;
    }
    return TY_OK;
}

static void walker_close(walker *w)
{
    ty_free(w->stage_of);
    ty_free(w->first_replicas);
    ty_free(w->done);
    ty_free(w->has_arrived);
    ty_free(w->arrivals);
    ty_free(w->queue);
    ty_free(w->is_queued);
}

ty_status ty_program_walk(const program_checker *checker)
{
    ty_status status = TY_OK;
    walker w = {.c = checker};

    TY_CHECK(walker_open(&w), status, cleanup);
    for (uint32_t stage_replica = 0; stage_replica < w.stage_replica_count; stage_replica++)
        enqueue(&w, stage_replica);
    while (w.queue_length > 0)
        walk_replica(&w, dequeue(&w));
    for (uint32_t stage_replica = 0; stage_replica < w.stage_replica_count && status == TY_OK;
         stage_replica++)
        for (int s = 0; s < TY_STREAM_COUNT && status == TY_OK; s++)
            if (!is_finished(&w, stage_replica, (ty_stream)s))
                status = report_deadlock(&w, (place){stage_replica, (ty_stream)s});

cleanup:
    walker_close(&w);
    return status;
}

pass_places *ty_program_pass(const program_checker *c, uint32_t stage, uint32_t micro_batch)
{
    const stage_facts *f = &c->stages[stage % c->pipeline_size];
    return &f->passes[(size_t)(stage / c->pipeline_size) * f->micro_batches + micro_batch];
}
