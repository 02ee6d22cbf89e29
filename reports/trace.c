/* Chrome/Perfetto trace events: "X" slices, "M" names, "s"/"f" flows from sends to receives. */
#include "operation.h"
#include "partners.h"
#include "ty_reports.h"

#include <stdio.h>

typedef struct trace {
    const ty_plan *plan;
    const ty_program *program;
    const partners *partners;
    ty_json_writer writer;
    uint32_t first_process; /* of the timeline being written */
    uint32_t ranks;         /* ranks of each stage replica with their own process */
    const char *label;
    uint64_t next_flow;
} trace;

static void put_name(trace *t, const char *kind, uint32_t process, uint32_t thread,
                     const char *name)
{
    ty_json_open_flat(&t->writer, NULL, '{');
    ty_json_put_string(&t->writer, "ph", "M");
    ty_json_put_string(&t->writer, "name", kind);
    ty_json_put_uint(&t->writer, "pid", process);
    ty_json_put_uint(&t->writer, "tid", thread);
    ty_json_open_flat(&t->writer, "args", '{');
    ty_json_put_string(&t->writer, "name", name);
    ty_json_close(&t->writer, '}');
    ty_json_close(&t->writer, '}');
}

static void put_names(trace *t)
{
    for (uint32_t r = 0; r < ty_plan_stage_replica_count(t->plan); r++) {
        uint32_t stage = ty_plan_stage_of_replica(t->plan, r);
        const uint32_t replica = (r - ty_plan_first_replica(t->plan, stage)) / t->ranks;
        char name[96], replica_rank[24] = "";
        if (t->ranks > 1)
            snprintf(replica_rank, sizeof replica_rank, ", rank %u", r % t->ranks);
        snprintf(name, sizeof name, "%s stage replica %u (stage %u, replica %u%s)", t->label,
                 r / t->ranks, stage, replica, replica_rank);
        put_name(t, "process_name", t->first_process + r, 0, name);
        for (uint32_t s = 0; s < TY_STREAM_COUNT; s++)
            put_name(t, "thread_name", t->first_process + r, s, ty_stream_name((ty_stream)s));
    }
}

static void put_slice(trace *t, const ty_event *event, const ty_instruction *in)
{
    char name[128];

    ty_operation_name(t->plan, in->op, in->first_layer, in->layer_count, in->bucket, in->phase,
                      name, sizeof name);
    ty_json_open_flat(&t->writer, NULL, '{');
    ty_json_put_string(&t->writer, "ph", "X");
    ty_json_put_string(&t->writer, "name", name);
    ty_json_put_string(&t->writer, "cat", ty_op_name(in->op));
    ty_json_put_uint(&t->writer, "pid", t->first_process + event->stage_replica);
    ty_json_put_uint(&t->writer, "tid", (uint64_t)in->stream);
    ty_json_put_number(&t->writer, "ts", event->start_s * 1e6);
    ty_json_put_number(&t->writer, "dur", (event->end_s - event->start_s) * 1e6);
    ty_json_open_flat(&t->writer, "args", '{');
    ty_json_put_uint(&t->writer, "step", event->step);
    ty_json_put_uint(&t->writer, "instruction", event->instruction);
    if (in->micro_batch != TY_NO_MICRO_BATCH)
        ty_json_put_uint(&t->writer, "micro_batch", in->micro_batch);
    if (in->bytes > 0)
        ty_json_put_uint(&t->writer, "bytes", in->bytes);
    ty_json_close(&t->writer, '}');
    ty_json_close(&t->writer, '}');
}

static void put_flow_end(trace *t, const char *phase, uint32_t stage_replica, ty_stream stream,
                         double at_s)
{
    ty_json_open_flat(&t->writer, NULL, '{');
    ty_json_put_string(&t->writer, "ph", phase);
    ty_json_put_string(&t->writer, "name", "transfer");
    ty_json_put_string(&t->writer, "cat", "transfer");
    ty_json_put_uint(&t->writer, "id", t->next_flow);
    ty_json_put_uint(&t->writer, "pid", t->first_process + stage_replica);
    ty_json_put_uint(&t->writer, "tid", (uint64_t)stream);
    ty_json_put_number(&t->writer, "ts", at_s * 1e6);
    if (phase[0] == 'f')
        ty_json_put_string(&t->writer, "bp", "e");
    ty_json_close(&t->writer, '}');
}

static void put_flow(trace *t, const ty_timeline *timeline, const ty_event *event,
                     const ty_instruction *in)
{
    uint32_t sender;
    uint32_t send = ty_partners_send(t->partners, event->stage_replica, in, &sender);
    const ty_event *from;
    double ready_s;

    if (send == UINT32_MAX)
        return;
    from = ty_timeline_find(timeline, t->program, t->plan, event->step, sender, send);
    ready_s = ty_partners_ready_s(t->partners, timeline, event);
    put_flow_end(t, "s", sender, TY_STREAM_SEND, from->start_s);
    /* Inside its slice, since the end is not part of it. */
    put_flow_end(t, "f", event->stage_replica, TY_STREAM_RECEIVE, 0.5 * (ready_s + event->end_s));
    t->next_flow++;
}

static void put_timeline(trace *t, const ty_timeline *timeline)
{
    put_names(t);
    for (uint64_t e = 0; e < timeline->event_count; e++) {
        const ty_event *event = &timeline->events[e];
        uint32_t stage = ty_plan_stage_of_replica(t->plan, event->stage_replica);
        const ty_instruction *in = &t->program->stages[stage].instructions[event->instruction];
        put_slice(t, event, in);
        if (in->op == TY_OP_RECEIVE)
            put_flow(t, timeline, event, in);
    }
    t->first_process += ty_plan_stage_replica_count(t->plan);
}

static ty_status write_trace(trace *t, const ty_timeline *predicted, const ty_timeline *measured,
                             ty_text *text, ty_error *error)
{
    partners *p = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_timeline_check(t->plan, t->program, predicted, "predicted", error), status, done);
    if (measured != NULL)
        TY_CHECK(ty_timeline_check(t->plan, t->program, measured, "measured", error), status, done);
    TY_CHECK(ty_partners_new(t->plan, t->program, &p, error), status, done);
    t->partners = p;
    ty_json_open(&t->writer, NULL, '{');
    ty_json_put_string(&t->writer, "displayTimeUnit", "ms");
    ty_json_open(&t->writer, "traceEvents", '[');
    t->label = "predicted";
    put_timeline(t, predicted);
    t->label = "measured";
    if (measured != NULL)
        put_timeline(t, measured);
    ty_json_close(&t->writer, ']');
    ty_json_close(&t->writer, '}');
    ty_text_add(text, "\n");
    status = ty_text_check(text, error);
done:
    ty_partners_free(p);
    return status;
}

ty_status ty_trace_write(const ty_plan *plan, const ty_program *program,
                         const ty_timeline *predicted, const ty_timeline *measured, ty_text *text,
                         ty_error *error)
{
    const uint32_t width = ty_plan_replica_ranks(plan);
    const bool is_by_device =
        width > 1 && predicted->stage_replica_count == ty_plan_rank_count(plan) && measured == NULL;
    trace t = {.plan = plan,
               .program = program,
               .writer = ty_json_writer_on(text),
               .ranks = is_by_device ? width : 1};
    ty_plan *view = NULL;
    ty_status status = TY_OK;

    if (is_by_device) {
        TY_CHECK(ty_plan_by_device(plan, &view, error), status, done);
        t.plan = view;
    }
    status = write_trace(&t, predicted, measured, text, error);
done:
    ty_plan_view_free(view);
    return status;
}
