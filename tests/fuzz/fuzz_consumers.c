/* Consumers of a valid plan: launch files of every target, the report, printed text, the comparison
 * with a run, the job for the worker. Each gives a result that can be read, or a reason. */
#include "fuzz.h"
#include "ty_planner.h"
#include "ty_reports.h"

#include <string.h>

/* Larger plans take longer, but in the same way. */
enum { MOST_PROCESSES = 64, MOST_INSTRUCTIONS = 3000 };

typedef struct consumed {
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
    ty_cluster *cluster;
    ty_timeline *timeline;
} consumed;

static void answer(ty_status status, const ty_error *error)
{
    MUST(status == TY_OK || strlen(error->message) > 10);
    MUST(status != TY_EIO && status != TY_EINTERRUPTED);
}

static bool open_plan(const uint8_t *bytes, size_t length, consumed *c)
{
    ty_json_document *document = NULL;
    ty_error error = {0};
    ty_status status = ty_json_parse((const char *)bytes, length, "input", &document, &error);
    uint64_t instructions = 0;

    if (status == TY_OK)
        status = ty_plan_from_json(ty_json_root(document), &c->plan, &error);
    ty_json_free(document);
    if (status != TY_OK || ty_plan_rank_count(c->plan) > MOST_PROCESSES)
        return false;
    c->cluster = ty_cluster_share(c->plan->cluster);
    status = ty_plan_lower(c->plan, &c->program, &error);
    answer(status, &error);
    if (status != TY_OK)
        return false;
    for (uint32_t s = 0; s < c->program->stage_count; s++)
        instructions += c->program->stages[s].instruction_count;
    if (instructions > MOST_INSTRUCTIONS)
        return false;
    status = ty_costs_of_program(c->plan, c->program, c->cluster, &c->costs, &error);
    answer(status, &error);
    return status == TY_OK;
}

/* In the format that trainyard run writes and the worker reads. */
static char *job_text(const consumed *c)
{
    ty_job job = {.kind = TY_JOB_TRAIN,
                  .plan = c->plan,
                  .program = c->program,
                  .backend = (char *)(uintptr_t) "cpu",
                  .output = (char *)(uintptr_t) "run.json",
                  .steps = 4,
                  .timeline_steps = 2};
    ty_json_document *document = NULL;
    ty_job *read = NULL;
    ty_error error = {0};
    ty_text text = {0};
    char *out = NULL;

    MUST(ty_job_to_text(&job, "input", &text, &error) == TY_OK);
    MUST(ty_json_parse(text.data, text.length, "job", &document, &error) == TY_OK);
    MUST(ty_job_from_json(ty_json_root(document), &read, &error) == TY_OK);
    MUST(read->steps == 4 &&
         ty_plan_stage_replica_count(read->plan) == ty_plan_stage_replica_count(c->plan));
    ty_job_free(read);
    ty_json_free(document);
    MUST(ty_text_take(&text, &out, &error) == TY_OK);
    return out;
}

static void use_launch_files(const consumed *c, const char *job)
{
    const char *target;

    for (uint32_t t = 0; (target = ty_launch_target(t, NULL)) != NULL; t++) {
        ty_launch_files *files = NULL;
        ty_error error = {0};
        const ty_launch_input input = {.plan = c->plan,
                                       .program = c->program,
                                       .costs = c->costs,
                                       .cluster = c->cluster,
                                       .job = job,
                                       .steps = 4,
                                       .command = c->plan->strategy,
                                       .version = "0"};
        const ty_status status = ty_launch(target, &input, &files, &error);
        answer(status, &error);
        for (uint32_t f = 0; status == TY_OK && f < files->count; f++) {
            const ty_launch_file *file = &files->files[f];
            MUST(file->is_binary || strlen(file->bytes) == file->length);
            MUST(strchr(file->name, '/') == NULL);
            MUST(!file->is_program || strncmp(file->bytes, "#!/bin/", 7) == 0);
        }
        ty_launch_free(files);
    }
}

static void use_timeline(consumed *c)
{
    ty_comparison *comparison = NULL;
    ty_error error = {0};
    ty_text text = {0};
    uint64_t peaks[MOST_PROCESSES] = {0};
    ty_run run = {.stage_replica_count = c->timeline->stage_replica_count,
                  .peak_memory_bytes = peaks,
                  .timeline = c->timeline};

    if (ty_compare(c->plan, c->program, c->timeline, &run, &comparison, &error) == TY_OK) {
        MUST(comparison->step_time_error > -1e-9 && comparison->step_time_error < 1e-9);
        ty_print_comparison(c->plan, comparison, &text);
        MUST(text.failed == TY_OK && text.length > 0);
        ty_text_clear(&text);
    }
    answer(ty_report_html(&(ty_report_input){.plan = c->plan,
                                             .program = c->program,
                                             .estimated = c->timeline,
                                             .costs = c->costs,
                                             .cluster = c->cluster,
                                             .comparison = comparison},
                          &text, &error),
           &error);
    MUST(text.data == NULL || strstr(text.data, "<script>alert") == NULL);
    ty_text_clear(&text);
    ty_comparison_free(comparison);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    consumed c = {0};
    ty_error error = {0};
    ty_text text = {0};
    char *job = NULL;

    if (!open_plan(bytes, length, &c))
        goto done;
    ty_print_plan(c.plan, c.cluster, NULL, &text);
    ty_print_memory(c.plan, &text);
    MUST(text.failed == TY_OK);
    job = job_text(&c);
    use_launch_files(&c, job);
    if (ty_estimate(c.plan, c.program, c.costs, 3 + 2 * ty_program_largest_lead(c.program),
                    &c.timeline, &error) == TY_OK)
        use_timeline(&c);
done:
    ty_text_clear(&text);
    ty_free(job);
    ty_timeline_free(c.timeline);
    ty_cluster_free(c.cluster);
    ty_costs_free(c.costs);
    ty_program_free(c.program);
    ty_plan_free(c.plan);
    return 0;
}
