/*
 * The proof of a program, second half: all ranks walk their streams as the readers will, in no time
 * at all. Whoever gets stuck waits for someone who is stuck too; following that leads round a
 * circle, which is the message.
 *
 * How far a rank has come is one number per stream, since streams run in order. A rank is looked
 * at again when a send to it or a collective of it is over, so the walk is linear in the events.
 */
#include "program_check.h"

#include "ty_memory.h"

#include <stdio.h>

typedef struct walker {
    const program_checker *c;
    uint32_t rank_count;
    uint32_t *stage_of;                /* [rank] */
    uint32_t *first_ranks;             /* [stage] */
    uint32_t (*done)[TY_STREAM_COUNT]; /* [rank]: instructions of each stream that are over */
    bool *has_arrived;  /* [rank]: waits inside the collective at the head of its stream */
    uint32_t *arrivals; /* [bucket]: members that have arrived */
    uint32_t *queue;    /* ring of ranks to look at */
    bool *is_queued;    /* [rank] */
    uint32_t queue_head, queue_length;
} walker;

/* A stream of a rank. */
typedef struct place {
    uint32_t rank;
    ty_stream stream;
} place;

static const stage_facts *facts_of(const walker *w, uint32_t rank)
{
    return &w->c->stages[w->stage_of[rank]];
}

static bool is_finished(const walker *w, uint32_t rank, ty_stream stream)
{
    return w->done[rank][stream] == facts_of(w, rank)->stream_lengths[stream];
}

/* Index of the instruction a stream has reached; the stream is not finished. */
static uint32_t head_index(const walker *w, place at)
{
    return facts_of(w, at.rank)->streams[at.stream][w->done[at.rank][at.stream]];
}

static const ty_instruction *instruction_of(const walker *w, uint32_t rank, uint32_t index)
{
    return &w->c->program->stages[w->stage_of[rank]].instructions[index];
}

static bool is_done(const walker *w, uint32_t rank, uint32_t index)
{
    return facts_of(w, rank)->order[index] < w->done[rank][instruction_of(w, rank, index)->stream];
}

static uint32_t global_micro_batch(const walker *w, uint32_t rank, const ty_instruction *in)
{
    const uint32_t stage = w->stage_of[rank];
    return ty_program_global_micro_batch(w->c->plan, stage, rank - w->first_ranks[stage],
                                         in->micro_batch);
}

static uint32_t peer_of(const walker *w, uint32_t rank, const ty_instruction *in)
{
    return w->first_ranks[in->peer_stage] +
           global_micro_batch(w, rank, in) % w->c->plan->stages[in->peer_stage].replicas;
}

/* The send that a receive of `rank` is matched with: an instruction of its peer. */
static uint32_t send_of(const walker *w, uint32_t rank, const ty_instruction *receive)
{
    const uint32_t replicas = w->c->plan->stages[receive->peer_stage].replicas;
    return w->c->stages[receive->peer_stage]
        .passes[global_micro_batch(w, rank, receive) / replicas]
        .sends[receive->direction];
}

static void enqueue(walker *w, uint32_t rank)
{
    if (w->is_queued[rank])
        return;
    w->is_queued[rank] = true;
    w->queue[(w->queue_head + w->queue_length) % w->rank_count] = rank;
    w->queue_length++;
}

static uint32_t dequeue(walker *w)
{
    uint32_t rank = w->queue[w->queue_head];
    w->queue_head = (w->queue_head + 1) % w->rank_count;
    w->queue_length--;
    w->is_queued[rank] = false;
    return rank;
}

/* ---- Walking ------------------------------------------------------------------------------- */

/* The n-th member of a bucket. */
static uint32_t member_at(const walker *w, const ty_bucket *bucket, uint32_t n)
{
    const uint32_t replicas = w->c->plan->stages[bucket->stage].replicas;
    return n < replicas ? w->first_ranks[bucket->stage] + n
                        : w->first_ranks[bucket->tied_stage] + n - replicas;
}

/* A rank has reached a collective; the last member to do so ends it for all. */
static bool arrive(walker *w, uint32_t rank, uint32_t index)
{
    const ty_bucket *bucket = &w->c->plan->buckets[index];
    const uint32_t members = ty_bucket_member_count(w->c->plan, bucket);

    if (w->has_arrived[rank])
        return false;
    w->has_arrived[rank] = true;
    if (++w->arrivals[index] < members)
        return false;
    for (uint32_t n = 0; n < members; n++) {
        uint32_t member = member_at(w, bucket, n);
        w->has_arrived[member] = false;
        w->done[member][TY_STREAM_COLLECTIVE]++;
        if (member != rank)
            enqueue(w, member);
    }
    return true;
}

/* Ends the instruction at the head of a stream if all it waits for is over. */
static bool advance(walker *w, place at)
{
    const ty_instruction *in;

    if (is_finished(w, at.rank, at.stream))
        return false;
    in = instruction_of(w, at.rank, head_index(w, at));
    for (uint32_t i = 0; i < in->wait_count; i++)
        if (!is_done(w, at.rank, in->waits[i]))
            return false;
    if (in->op == TY_OP_COLLECTIVE)
        return arrive(w, at.rank, in->bucket);
    if (in->op == TY_OP_RECEIVE && !is_done(w, peer_of(w, at.rank, in), send_of(w, at.rank, in)))
        return false;
    w->done[at.rank][at.stream]++;
    if (in->op == TY_OP_SEND)
        enqueue(w, peer_of(w, at.rank, in));
    return true;
}

static void walk_rank(walker *w, uint32_t rank)
{
    bool has_moved;
    do {
        has_moved = false;
        for (int s = 0; s < TY_STREAM_COUNT; s++)
            while (advance(w, (place){rank, (ty_stream)s}))
                has_moved = true;
    } while (has_moved);
}

/* ---- Deadlock ------------------------------------------------------------------------------ */

/* The stream that the head of a stuck stream waits for; it is stuck as well. */
static place waits_for(const walker *w, place at)
{
    const ty_instruction *in = instruction_of(w, at.rank, head_index(w, at));
    const ty_bucket *bucket;
    uint32_t n = 0;

    for (uint32_t i = 0; i < in->wait_count; i++)
        if (!is_done(w, at.rank, in->waits[i]))
            return (place){at.rank, instruction_of(w, at.rank, in->waits[i])->stream};
    if (in->op != TY_OP_COLLECTIVE)
        return (place){peer_of(w, at.rank, in), TY_STREAM_SEND};
    bucket = &w->c->plan->buckets[in->bucket];
    for (;; n++) {
        place member = {member_at(w, bucket, n), TY_STREAM_COLLECTIVE};
        const ty_instruction *head = instruction_of(w, member.rank, head_index(w, member));
        if (!w->has_arrived[member.rank] || head->bucket != in->bucket)
            return member;
    }
}

static ty_status report_deadlock(const walker *w, place start)
{
    place at = start, worst, first;
    char waiting[160], awaited[160];
    uint32_t index, other;

    /* More steps than there are streams end inside the circle. */
    for (uint64_t i = 0; i < (uint64_t)w->rank_count * TY_STREAM_COUNT; i++)
        at = waits_for(w, at);
    /* A rank cannot wait for itself alone, its waits name earlier instructions: somewhere in the
       circle one waits for another. Name the lowest such rank. */
    worst = first = at;
    do {
        place next = waits_for(w, at);
        if (next.rank != at.rank &&
            (at.rank < worst.rank || waits_for(w, worst).rank == worst.rank))
            worst = at;
        at = next;
    } while (at.rank != first.rank || at.stream != first.stream);

    index = head_index(w, worst);
    at = waits_for(w, worst);
    other = head_index(w, at);
    ty_instruction_describe(instruction_of(w, worst.rank, index), waiting, sizeof waiting);
    ty_instruction_describe(instruction_of(w, at.rank, other), awaited, sizeof awaited);
    return ty_fail(w->c->error, TY_EPARSE,
                   "%s/stages/%u/instructions/%u: deadlock: rank %u (stage %u) is stuck at the %s "
                   "and waits for rank %u (stage %u), which is stuck at instruction %u, the %s",
                   w->c->place, w->stage_of[worst.rank], index, worst.rank, w->stage_of[worst.rank],
                   waiting, at.rank, w->stage_of[at.rank], other, awaited);
}

ty_status ty_program_walk(const program_checker *checker)
{
    const ty_plan *plan = checker->plan;
    ty_status status = TY_OK;
    const uint32_t ranks = ty_plan_rank_count(plan);
    walker w = {.c = checker, .rank_count = ranks};

    w.stage_of = ty_alloc(ranks, sizeof *w.stage_of);
    w.first_ranks = ty_alloc(plan->stage_count, sizeof *w.first_ranks);
    w.done = ty_alloc(ranks, sizeof *w.done);
    w.has_arrived = ty_alloc(ranks, sizeof *w.has_arrived);
    w.arrivals = ty_alloc(plan->bucket_count, sizeof *w.arrivals);
    w.queue = ty_alloc(ranks, sizeof *w.queue);
    w.is_queued = ty_alloc(ranks, sizeof *w.is_queued);
    if (w.stage_of == NULL || w.first_ranks == NULL || w.done == NULL || w.has_arrived == NULL ||
        w.arrivals == NULL || w.queue == NULL || w.is_queued == NULL) {
        status = ty_fail(checker->error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    for (uint32_t s = 0, rank = 0; s < plan->stage_count; s++) {
        w.first_ranks[s] = rank;
        for (uint32_t q = 0; q < plan->stages[s].replicas; q++)
            w.stage_of[rank++] = s;
    }
    for (uint32_t rank = 0; rank < ranks; rank++)
        enqueue(&w, rank);
    while (w.queue_length > 0)
        walk_rank(&w, dequeue(&w));
    for (uint32_t rank = 0; rank < ranks && status == TY_OK; rank++)
        for (int s = 0; s < TY_STREAM_COUNT && status == TY_OK; s++)
            if (!is_finished(&w, rank, (ty_stream)s))
                status = report_deadlock(&w, (place){rank, (ty_stream)s});

cleanup:
    ty_free(w.stage_of);
    ty_free(w.first_ranks);
    ty_free(w.done);
    ty_free(w.has_arrived);
    ty_free(w.arrivals);
    ty_free(w.queue);
    ty_free(w.is_queued);
    return status;
}
