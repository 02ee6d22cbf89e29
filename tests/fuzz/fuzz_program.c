/*
 * Input: {"plan": ..., "program": ...}. If the check accepts a program, the simplest execution
 * reaches its end; if it reports a deadlock, the execution does not. The program's digest is
 * corrected first, so that mutations pass it.
 */
#include "fuzz.h"
#include "ty_core.h"

#include <math.h>
#include <string.h>

enum { MAX_EVENTS = 20000 };

/* ---- The simplest execution: sweep over all instructions of all stage replicas until none can
 * run. ---------- */

typedef struct sweep {
    const ty_plan *plan;
    const ty_program *program;
    bool **done; /* [stage replica][instruction] */
} sweep;

static const ty_stage_program *stage_of(const sweep *w, uint32_t stage_replica)
{
    return &w->program->stages[ty_plan_stage_of_replica(w->plan, stage_replica)];
}

/* All earlier instructions of its stream, and all that it waits for, have ended. */
static bool is_reached(const sweep *w, uint32_t stage_replica, uint32_t index)
{
    const ty_instruction *all = stage_of(w, stage_replica)->instructions, *in = &all[index];
    for (uint32_t i = 0; i < index; i++)
        if (all[i].stream == in->stream && !w->done[stage_replica][i])
            return false;
    for (uint32_t i = 0; i < in->wait_count; i++)
        if (!w->done[stage_replica][in->waits[i]])
            return false;
    return true;
}

static uint32_t global_of(const sweep *w, uint32_t stage_replica, const ty_instruction *in)
{
    uint32_t stage = ty_plan_stage_of_replica(w->plan, stage_replica);
    return ty_program_global_micro_batch(
        w->plan, stage, stage_replica - ty_plan_first_replica(w->plan, stage), in->micro_batch);
}

static bool is_sent(const sweep *w, uint32_t stage_replica, const ty_instruction *receive)
{
    uint32_t peer = ty_program_peer_replica(w->plan, stage_replica, receive);
    const ty_stage_program *s = stage_of(w, peer);
    for (uint32_t i = 0; i < s->instruction_count; i++)
        if (s->instructions[i].op == TY_OP_SEND && w->done[peer][i] &&
            s->instructions[i].direction == receive->direction &&
            global_of(w, peer, &s->instructions[i]) == global_of(w, stage_replica, receive))
            return true;
    return false;
}

/* Every member is at the collective, or beyond it. */
static bool have_met(const sweep *w, const ty_instruction *in)
{
    uint32_t *members = ty_alloc(ty_plan_stage_replica_count(w->plan), sizeof *members);
    uint32_t count, met = 0;

    MUST(members != NULL);
    count = ty_bucket_members(w->plan, &w->plan->buckets[in->bucket], members);
    for (uint32_t m = 0; m < count; m++) {
        const ty_stage_program *s = stage_of(w, members[m]);
        for (uint32_t i = 0; i < s->instruction_count; i++)
            if (s->instructions[i].op == TY_OP_COLLECTIVE &&
                s->instructions[i].bucket == in->bucket)
                met += w->done[members[m]][i] || is_reached(w, members[m], i);
    }
    ty_free(members);
    return met == count;
}

static bool try_one(const sweep *w, uint32_t stage_replica, uint32_t index)
{
    const ty_instruction *in = &stage_of(w, stage_replica)->instructions[index];
    return !w->done[stage_replica][index] && is_reached(w, stage_replica, index) &&
           (in->op != TY_OP_RECEIVE || is_sent(w, stage_replica, in)) &&
           (in->op != TY_OP_COLLECTIVE || have_met(w, in));
}

static bool reaches_the_end(const ty_plan *plan, const ty_program *program)
{
    sweep w = {plan, program, NULL};
    const uint32_t stage_replicas = ty_plan_stage_replica_count(plan);
    bool has_moved = true;
    uint64_t left = ty_program_event_count(plan, program);

    w.done = ty_alloc(stage_replicas, sizeof *w.done);
    MUST(w.done != NULL);
    for (uint32_t stage_replica = 0; stage_replica < stage_replicas; stage_replica++)
        MUST((w.done[stage_replica] =
                  ty_alloc(stage_of(&w, stage_replica)->instruction_count, sizeof(bool))) != NULL);
    while (has_moved) {
        has_moved = false;
        for (uint32_t stage_replica = 0; stage_replica < stage_replicas; stage_replica++)
            for (uint32_t i = 0; i < stage_of(&w, stage_replica)->instruction_count; i++)
                if (try_one(&w, stage_replica, i)) {
                    w.done[stage_replica][i] = has_moved = true;
                    left--;
                }
    }
    for (uint32_t stage_replica = 0; stage_replica < stage_replicas; stage_replica++)
        ty_free(w.done[stage_replica]);
    ty_free(w.done);
    return left == 0;
}

/* ---- The target ---------------------------------------------------------------------------- */

static void use_program(const ty_plan *plan, const ty_program *program)
{
    ty_timeline *timeline = NULL;
    ty_step_summary s;
    ty_text listing = {0};
    ty_error error = {0};
    double sum;

    for (uint32_t stage = 0; stage < program->stage_count; stage++) {
        uint32_t peak = ty_program_peak_in_flight(program, stage);
        MUST(peak >= 1 && peak <= plan->micro_batches / plan->stages[stage].replicas);
    }
    MUST(ty_timeline_new(plan, 1, &timeline, &error) == TY_OK);
    for (uint32_t stage_replica = 0; stage_replica < timeline->stage_replica_count;
         stage_replica++) {
        uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica);
        for (uint32_t i = 0; i < program->stages[stage].instruction_count; i++) {
            ty_event event = {stage_replica, 0, i, (stage_replica * 7 + i * 5) % 11,
                              (stage_replica * 7 + i * 5) % 11 + 1};
            MUST(ty_timeline_add(timeline, &event) == TY_OK);
        }
    }
    ty_timeline_sort(timeline);
    MUST(ty_timeline_summarize(plan, program, timeline, &s, &error) == TY_OK);
    sum = s.compute_share + s.exposed_collective_share + s.exposed_transfer_share + s.bubble_share +
          s.input_share;
    MUST(fabs(sum - 1) < 1e-9);
    ty_program_print(plan, program, &listing);
    MUST(listing.length > 0 && !listing.failed);
    ty_text_clear(&listing);
    ty_timeline_free(timeline);
}

static void check_program(const ty_plan *plan, ty_program *program)
{
    ty_error error = {0};
    ty_status status;

    MUST(ty_plan_digest(plan, &program->plan_digest, &error) == TY_OK);
    status = ty_program_check(plan, program, "input", &error);
    MUST(status == TY_OK || status == TY_EPARSE);
    if (program->stage_count != plan->stage_count ||
        ty_program_event_count(plan, program) > MAX_EVENTS)
        return;
    if (status == TY_OK) {
        MUST(reaches_the_end(plan, program));
        use_program(plan, program);
    } else if (strstr(error.message, "deadlock") != NULL) {
        MUST(!reaches_the_end(plan, program));
    }
}

static void write_twice(const ty_program *program)
{
    ty_text text = {0}, again = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    ty_program *read = NULL;
    ty_error error = {0};

    ty_program_to_json(program, &writer, NULL);
    MUST(ty_json_parse(text.data, text.length, "again", &document, &error) == TY_OK);
    MUST(ty_program_from_json(ty_json_root(document), &read, &error) == TY_OK);
    writer = ty_json_writer_on(&again);
    ty_program_to_json(read, &writer, NULL);
    MUST(strcmp(text.data, again.data) == 0);
    ty_json_free(document);
    ty_program_free(read);
    ty_text_clear(&text);
    ty_text_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_json_document *document = NULL;
    const ty_json *value;
    ty_program *program = NULL;
    ty_plan *plan = NULL;
    ty_error error = {0};

    if (ty_json_parse((const char *)bytes, length, "input", &document, &error) == TY_OK &&
        ty_json_object(ty_json_root(document), "program", &value, &error) == TY_OK &&
        ty_program_from_json(value, &program, &error) == TY_OK) {
        write_twice(program);
        if (ty_json_object(ty_json_root(document), "plan", &value, &error) == TY_OK &&
            ty_plan_from_json(value, &plan, &error) == TY_OK)
            check_program(plan, program);
    }
    if (plan == NULL)
        MUST(error.status == TY_EPARSE && strlen(error.message) > 10);
    ty_json_free(document);
    ty_program_free(program);
    ty_plan_free(plan);
    return 0;
}
