/*
 * The proof of a program, second half: all ranks walk their streams as the readers will, in no time
 * at all. Whoever gets stuck waits for someone who is stuck too; following that leads round a
 * circle, which is the message.
 *
 * How far a rank has come is one number per stream, since streams run in order. A rank is looked
 * at again when a send to it or a collective of it is over, so the walk is linear in the events.
 * Where steps overlap, enough of them are walked to fill the pipe and drain it; a place in a stream
 * then counts rounds times the stream's length.
 *
 * Replicas and lanes that do the same are walked once: with equal replicas everywhere, micro-batch
 * m meets none but the m-th replicas, and exchanges join alike ranks at alike places.
 */
#include "program_check.h"

#include "ty_base.h"

#include <stdio.h>

typedef struct walker {
    const program_checker *c;
    uint32_t rank_count;               /* of those that are walked */
    uint32_t steps, lead;              /* of the walk; rounds before the first step's end */
    bool is_folded;                    /* one replica stands for all */
    uint32_t *stage_of;                /* [rank]: position */
    uint32_t *first_ranks;             /* [position] */
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

static uint32_t replicas_of(const walker *w, uint32_t position)
{
    return w->is_folded ? 1 : w->c->plan->stages[position].replicas;
}

static bool is_finished(const walker *w, uint32_t rank, ty_stream stream)
{
    return w->done[rank][stream] ==
           (w->lead + w->steps) * facts_of(w, rank)->stream_lengths[stream];
}

/* Index of the instruction a stream has reached; the stream is not finished. */
static uint32_t head_index(const walker *w, place at)
{
    const stage_facts *f = facts_of(w, at.rank);
    return f->streams[at.stream][w->done[at.rank][at.stream] % f->stream_lengths[at.stream]];
}

static const ty_instruction *instruction_of(const walker *w, uint32_t rank, uint32_t index)
{
    return &w->c->program->stages[w->stage_of[rank]].instructions[index];
}

/* The step, counted from `lead` on, that the head of a stream belongs to. */
static uint32_t head_step(const walker *w, place at)
{
    const uint32_t round =
        w->done[at.rank][at.stream] / facts_of(w, at.rank)->stream_lengths[at.stream];
    return round + instruction_of(w, at.rank, head_index(w, at))->lead;
}

/* Whether an instruction is over for a step. */
static bool is_done(const walker *w, uint32_t rank, uint32_t index, uint32_t step)
{
    const stage_facts *f = facts_of(w, rank);
    const ty_instruction *in = instruction_of(w, rank, index);
    return (step - in->lead) * f->stream_lengths[in->stream] + f->order[index] <
           w->done[rank][in->stream];
}

static uint32_t position_of(const walker *w, uint32_t stage)
{
    return stage % w->c->positions;
}

static uint32_t global_micro_batch(const walker *w, uint32_t rank, const ty_instruction *in)
{
    const uint32_t position = w->stage_of[rank];
    return in->micro_batch * replicas_of(w, position) + (rank - w->first_ranks[position]);
}

static uint32_t peer_of(const walker *w, uint32_t rank, const ty_instruction *in)
{
    const uint32_t peer = position_of(w, in->peer_stage);
    return w->first_ranks[peer] + global_micro_batch(w, rank, in) % replicas_of(w, peer);
}

/* The send that a receive of `rank` is matched with: an instruction of its peer. */
static uint32_t send_of(const walker *w, uint32_t rank, const ty_instruction *receive)
{
    const uint32_t replicas = replicas_of(w, position_of(w, receive->peer_stage));
    return ty_program_pass(w->c, receive->peer_stage,
                           global_micro_batch(w, rank, receive) / replicas)
        ->sends[receive->direction];
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

/* Members of a bucket that are walked, and the n-th of them. */
static uint32_t member_count(const walker *w, const ty_bucket *bucket)
{
    uint32_t count = replicas_of(w, position_of(w, bucket->stage));
    if (bucket->tied_stage != TY_NO_STAGE)
        count += replicas_of(w, position_of(w, bucket->tied_stage));
    return count;
}

static uint32_t member_at(const walker *w, const ty_bucket *bucket, uint32_t n)
{
    const uint32_t own = position_of(w, bucket->stage), replicas = replicas_of(w, own);
    return n < replicas ? w->first_ranks[own] + n
                        : w->first_ranks[position_of(w, bucket->tied_stage)] + n - replicas;
}

/* A rank has reached a collective; the last member to do so ends it for all. */
static bool arrive(walker *w, uint32_t rank, uint32_t index)
{
    const ty_bucket *bucket = &w->c->plan->buckets[index];
    const uint32_t members = member_count(w, bucket);

    if (w->has_arrived[rank])
        return false;
    w->has_arrived[rank] = true;
    if (++w->arrivals[index] < members)
        return false;
    w->arrivals[index] = 0; /* for the next phase */
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
    uint32_t step;

    if (is_finished(w, at.rank, at.stream))
        return false;
    in = instruction_of(w, at.rank, head_index(w, at));
    step = head_step(w, at);
    if (step >= w->lead && step < w->lead + w->steps) {
        for (uint32_t i = 0; i < in->wait_count; i++)
            if (!is_done(w, at.rank, in->waits[i], step))
                return false;
        if (in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER)
            return arrive(w, at.rank, in->bucket);
        if (in->op == TY_OP_RECEIVE &&
            !is_done(w, peer_of(w, at.rank, in), send_of(w, at.rank, in), step))
            return false;
    }
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
        if (!is_done(w, at.rank, in->waits[i], head_step(w, at)))
            return (place){at.rank, instruction_of(w, at.rank, in->waits[i])->stream};
    if (in->op != TY_OP_COLLECTIVE && in->op != TY_OP_GATHER)
        return (place){peer_of(w, at.rank, in), TY_STREAM_SEND};
    bucket = &w->c->plan->buckets[in->bucket];
    for (;; n++) {
        place member = {member_at(w, bucket, n), TY_STREAM_COLLECTIVE};
        const ty_instruction *head;
        if (!w->has_arrived[member.rank])
            return member;
        head = instruction_of(w, member.rank, head_index(w, member));
        if (head->bucket != in->bucket || head->phase != in->phase)
            return member;
    }
}

/* The plan's number of a rank that is walked. */
static uint32_t number_of(const walker *w, uint32_t rank)
{
    const uint32_t position = w->stage_of[rank];
    return ty_plan_first_rank(w->c->plan, position) + rank - w->first_ranks[position];
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
                   w->c->place, w->stage_of[worst.rank], index, number_of(w, worst.rank),
                   w->stage_of[worst.rank], waiting, number_of(w, at.rank), w->stage_of[at.rank],
                   other, awaited);
}

/* Equal replicas everywhere, so that replica q of a stage meets only replica q of another. */
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
    for (uint32_t p = 0; p < c->positions; p++) {
        w->rank_count += replicas_of(w, p);
        if (c->stages[p].lead > w->lead)
            w->lead = c->stages[p].lead;
    }
    w->steps = w->lead > 0 ? w->lead + 2 : 1;
    w->stage_of = ty_alloc(w->rank_count, sizeof *w->stage_of);
    w->first_ranks = ty_alloc(c->positions, sizeof *w->first_ranks);
    w->done = ty_alloc(w->rank_count, sizeof *w->done);
    w->has_arrived = ty_alloc(w->rank_count, sizeof *w->has_arrived);
    w->arrivals = ty_alloc(c->plan->bucket_count, sizeof *w->arrivals);
    w->queue = ty_alloc(w->rank_count, sizeof *w->queue);
    w->is_queued = ty_alloc(w->rank_count, sizeof *w->is_queued);
    TY_TRY(ty_check_memory(w->stage_of != NULL && w->first_ranks != NULL && w->done != NULL &&
                               w->has_arrived != NULL && w->arrivals != NULL && w->queue != NULL &&
                               w->is_queued != NULL,
                           c->error));
    for (uint32_t p = 0, rank = 0; p < c->positions; p++) {
        w->first_ranks[p] = rank;
        for (uint32_t q = 0; q < replicas_of(w, p); q++)
            w->stage_of[rank++] = p;
    }
    return TY_OK;
}

static void walker_close(walker *w)
{
    ty_free(w->stage_of);
    ty_free(w->first_ranks);
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
    for (uint32_t rank = 0; rank < w.rank_count; rank++)
        enqueue(&w, rank);
    while (w.queue_length > 0)
        walk_rank(&w, dequeue(&w));
    for (uint32_t rank = 0; rank < w.rank_count && status == TY_OK; rank++)
        for (int s = 0; s < TY_STREAM_COUNT && status == TY_OK; s++)
            if (!is_finished(&w, rank, (ty_stream)s))
                status = report_deadlock(&w, (place){rank, (ty_stream)s});

cleanup:
    walker_close(&w);
    return status;
}

pass_places *ty_program_pass(const program_checker *c, uint32_t stage, uint32_t micro_batch)
{
    const stage_facts *f = &c->stages[stage % c->positions];
    return &f->passes[(size_t)(stage / c->positions) * f->micro_batches + micro_batch];
}
