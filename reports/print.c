/* Plans, summaries, memory, runs and comparisons as text for a terminal. */
#include "operation.h"
#include "ty_reports.h"

#include <math.h>
#include <stdio.h>

static const char *provenance_sentence(ty_provenance provenance)
{
    static const char *const sentences[] = {
        [TY_MEASURED] = "times measured on this hardware",
        [TY_CALIBRATED] = "times calibrated from published curves",
        [TY_DATASHEET] = "times from data sheets and a roofline: expect tens of per cent of error",
    };
    return sentences[provenance];
}

void ty_print_summary(const ty_step_summary *s, ty_text *text)
{
    char time[32], rate[32], tokens[32];

    ty_format_seconds(s->step_time_s, time);
    ty_format_count(s->samples_per_s, rate);
    ty_text_addf(text, "step time   %s\nthroughput  %s samples/s", time, rate);
    if (s->tokens_per_s > 0) {
        ty_format_count(s->tokens_per_s, tokens);
        ty_text_addf(text, ", %s tokens/s", tokens);
    }
    ty_text_addf(text,
                 "\nmade of     compute %.1f %%, gradient exchange %.1f %%, transfers %.1f %%, "
                 "bubble %.1f %%, input %.1f %%\nlimited by  %s\n",
                 s->compute_share * 100, s->exposed_collective_share * 100,
                 s->exposed_transfer_share * 100, s->bubble_share * 100, s->input_share * 100,
                 s->limited_by);
}

static void print_stages(const ty_plan *plan, ty_text *text)
{
    ty_text_add(text,
                "stage  layers                              replicas  devices     parameters\n");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_plan_stage *stage = &plan->stages[s];
        const ty_workload *w = plan->workload;
        char range[80], devices[24], parameters[32];
        snprintf(range, sizeof range, "%.16s .. %.16s (%u)", w->layers[stage->first_layer].name,
                 w->layers[stage->first_layer + stage->layer_count - 1].name, stage->layer_count);
        if (stage->replicas > 1)
            snprintf(devices, sizeof devices, "%u..%u", stage->devices[0],
                     stage->devices[stage->replicas - 1]);
        else
            snprintf(devices, sizeof devices, "%u", stage->devices[0]);
        ty_format_count(
            (double)(ty_workload_parameter_bytes(w, stage->first_layer, stage->layer_count) /
                     w->element_bytes),
            parameters);
        ty_text_addf(text, "%5u  %-34s  %8u  %-10s  %10s\n", s, range, stage->replicas, devices,
                     parameters);
    }
}

static void print_buckets(const ty_plan *plan, ty_text *text)
{
    uint64_t bytes = 0;
    uint32_t exchanged = 0;
    char size[32];

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (plan->stages[bucket->stage].replicas > 1 || bucket->tied_stage != TY_NO_STAGE) {
            exchanged++;
            bytes += ty_bucket_wire_bytes(bucket);
        }
    }
    if (exchanged == 0)
        return;
    ty_format_bytes((double)bytes, size);
    ty_text_addf(text, "gradients   %u bucket%s, %s handed to the network a step, %s%s%s\n",
                 exchanged, exchanged > 1 ? "s" : "", size,
                 ty_algorithm_name(plan->buckets[0].algorithm),
                 plan->buckets[0].compression != TY_COMPRESSION_NONE ? ", " : "",
                 plan->buckets[0].compression != TY_COMPRESSION_NONE
                     ? ty_compression_name(plan->buckets[0].compression)
                     : "");
}

void ty_print_memory(const ty_plan *plan, ty_text *text)
{
    ty_text_add(text,
                "stage  parameters  gradients  optimizer  activations  exchange  compression  "
                "workspace       total\n");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_memory_use *use = &plan->memory[s];
        const uint64_t rows[] = {use->parameter_bytes,     use->gradient_bytes,
                                 use->optimizer_bytes,     use->activation_bytes,
                                 use->communication_bytes, use->compression_bytes,
                                 use->workspace_bytes,     ty_memory_use_total(use)};
        static const int widths[] = {10, 9, 9, 11, 8, 11, 9, 10};
        ty_text_addf(text, "%5u", s);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            char bytes[32];
            ty_format_memory((double)rows[i], bytes);
            ty_text_addf(text, "  %*s", widths[i], bytes);
        }
        ty_text_add(text, "\n");
    }
}

/* How many losers a person wants to read about. */
#define SHOWN_CANDIDATES 12

static void print_candidates(const ty_plan *plan, ty_text *text)
{
    ty_text_add(text, "candidate                                     estimate  simulated  why\n");
    for (uint32_t c = 0; c < plan->candidate_count && c < SHOWN_CANDIDATES; c++) {
        const ty_candidate *row = &plan->candidates[c];
        char estimated[32] = "-", simulated[32] = "-";
        if (row->step_time_s > 0)
            ty_format_seconds(row->step_time_s, estimated);
        if (row->simulated_step_time_s > 0)
            ty_format_seconds(row->simulated_step_time_s, simulated);
        ty_text_addf(text, "%-44s %9s  %9s  %s\n", row->name, estimated, simulated, row->reason);
    }
    if (plan->candidate_count > SHOWN_CANDIDATES)
        ty_text_addf(text, "... and %u more (--candidates FILE writes all)\n",
                     plan->candidate_count - SHOWN_CANDIDATES);
}

void ty_print_plan(const ty_plan *plan, ty_text *text)
{
    ty_text_addf(text, "%s on %s: %s\n", plan->workload->name, plan->cluster_name, plan->strategy);
    ty_text_addf(text, "batch       %u samples a step in %u micro-batch%s of %u\n",
                 plan->global_batch, plan->micro_batches, plan->micro_batches > 1 ? "es" : "",
                 plan->micro_batch_size);
    print_buckets(plan, text);
    if (plan->has_prediction) {
        ty_print_summary(plan->simulation.step_time_s > 0 ? &plan->simulation : &plan->prediction,
                         text);
        ty_text_addf(text, "provenance  %s%s\n", provenance_sentence(plan->provenance),
                     plan->simulation.step_time_s > 0 ? ", simulated" : ", estimated");
    }
    ty_text_add(text, "\n");
    print_stages(plan, text);
    ty_text_add(text, "\n");
    ty_print_memory(plan, text);
    if (plan->candidate_count > 0) {
        ty_text_add(text, "\n");
        print_candidates(plan, text);
    }
}

void ty_print_comparison(const ty_plan *plan, const ty_comparison *c, ty_text *text)
{
    char predicted[32], measured[32];

    ty_format_seconds(c->predicted.step_time_s, predicted);
    ty_format_seconds(c->measured.step_time_s, measured);
    ty_text_addf(text, "step time   predicted %s, measured %s: %+.1f %%\n", predicted, measured,
                 c->step_time_error * 100);
    if (c->predicted_peak_memory_bytes > 0 && c->measured_peak_memory_bytes > 0) {
        ty_format_memory((double)c->predicted_peak_memory_bytes, predicted);
        ty_format_memory((double)c->measured_peak_memory_bytes, measured);
        ty_text_addf(text, "memory      predicted %s, measured %s (largest rank)\n", predicted,
                     measured);
    }
    ty_text_addf(
        text,
        "\n               %10s %10s\ncompute        %9.1f%% %9.1f%%\n"
        "exchange       %9.1f%% %9.1f%%\ntransfers      %9.1f%% %9.1f%%\n"
        "bubble         %9.1f%% %9.1f%%\ninput          %9.1f%% %9.1f%%\n\n",
        "predicted", "measured", c->predicted.compute_share * 100, c->measured.compute_share * 100,
        c->predicted.exposed_collective_share * 100, c->measured.exposed_collective_share * 100,
        c->predicted.exposed_transfer_share * 100, c->measured.exposed_transfer_share * 100,
        c->predicted.bubble_share * 100, c->measured.bubble_share * 100,
        c->predicted.input_share * 100, c->measured.input_share * 100);
    ty_text_addf(text, "%5s  %-44s %8s %10s %10s %8s\n", "stage", "operation", "per step",
                 "predicted", "measured", "error");
    for (uint32_t r = 0; r < c->row_count; r++) {
        const ty_comparison_row *row = &c->rows[r];
        char name[96];
        ty_operation_name(plan, row->op, row->first_layer, row->layer_count, row->bucket, name,
                          sizeof name);
        ty_format_seconds(row->predicted_s, predicted);
        ty_format_seconds(row->measured_s, measured);
        ty_text_addf(text, "%5u  %-44.44s %8.0f %10s %10s %+7.1f%%\n", row->stage, name,
                     row->per_step, predicted, measured, row->error * 100);
    }
}

void ty_print_run(const ty_run *run, ty_text *text)
{
    char memory[32], wall[32];
    uint64_t peak = 0;

    for (uint32_t r = 0; r < run->rank_count; r++)
        peak = run->peak_memory_bytes[r] > peak ? run->peak_memory_bytes[r] : peak;
    ty_format_memory((double)peak, memory);
    ty_format_seconds(run->wall_s, wall);
    ty_text_addf(text, "%u ranks (%s), %u steps in %s\n", run->rank_count, run->backend,
                 run->step_count, wall);
    ty_print_summary(&run->summary, text);
    ty_text_addf(text, "loss        %.4f -> %.4f\nmemory      %s (largest rank)\n",
                 run->step_count > 0 ? run->losses[0] : 0.0,
                 run->step_count > 0 ? run->losses[run->step_count - 1] : 0.0, memory);
    for (uint32_t e = 0; e < run->evaluation_count; e++) {
        const ty_evaluation *evaluation = &run->evaluations[e];
        ty_format_seconds(evaluation->seconds, wall);
        ty_text_addf(text, "test        accuracy %.4f, loss %.4f after %u steps (%s)\n",
                     evaluation->accuracy, evaluation->loss, evaluation->step, wall);
    }
}
