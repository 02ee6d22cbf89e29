/* Queries to the planner, as in `plan` and the rows of `whatif`: with valid workloads and clusters,
 * or in lines, "fix tp=2", "vary hosts=2". The result is a plan that survives a round trip, or a
 * reason. */
#include "fuzz.h"
#include "ty_planner.h"
#include "vary.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* Larger ones take longer, but in the same way. */
enum { MOST_DEVICES = 16, MOST_VERTICES = 200, MOST_LAYERS = 120, MOST_LOOKS = 300 };

static const char *const workloads[] = {"lenet", "mlp", "gpt-tiny", "es-humanoid", "fedavg-cnn"};
static const char *const clusters[] = {"1x p100-server", "2x p100-server",
                                       "leaf:2 host:2 gpu:2 @v100-sxm2-16gb nvlink2 edr100",
                                       "1x dgx-a100", "1x p100-server + 1x dgx1-v100"};
enum {
    WORKLOADS = sizeof workloads / sizeof *workloads,
    CLUSTERS = sizeof clusters / sizeof *clusters
};

/* Interrupts after MOST_LOOKS calls. */
static bool should_stop(void *context)
{
    uint32_t *looks = context;

    return ++*looks > MOST_LOOKS;
}

static bool is_answer(ty_status status)
{
    return status == TY_EINVAL || status == TY_EPARSE || status == TY_EINFEASIBLE ||
           status == TY_EINTERRUPTED || status == TY_EUNSUPPORTED || status == TY_EIO;
}

static void check_plan(const ty_plan *plan, const ty_question_inputs *q)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    ty_plan *again = NULL;
    ty_error error = {0};

    MUST(isfinite(plan->prediction.step_time_s) && plan->prediction.step_time_s > 0);
    MUST(ty_plan_rank_count(plan) <= ty_cluster_device_count(q->cluster));
    MUST(plan->fix != NULL && plan->candidate_count > 0);
    ty_plan_to_json(plan, &writer, NULL);
    MUST(ty_text_check(&text, &error) == TY_OK);
    MUST(ty_json_parse(text.data, text.length, "plan", &document, &error) == TY_OK);
    if (ty_plan_from_json(ty_json_root(document), &again, &error) != TY_OK) {
        fprintf(stderr, "not read again: %s\n", error.message);
        abort();
    }
    MUST(again->micro_batches == plan->micro_batches && again->stage_count == plan->stage_count);
    ty_plan_free(again);
    ty_json_free(document);
    ty_text_clear(&text);
}

static void ask(const ty_vary_point *point)
{
    uint32_t looks = 0;
    const ty_watch watch = {.should_stop = should_stop, .context = &looks};
    ty_question_inputs q = {0};
    ty_plan *plan = NULL;
    ty_suggestion suggestion = {0};
    ty_error error = {0};
    ty_status status = ty_vary_open(point, &watch, &q, &error);

    MUST(status == TY_OK || (is_answer(status) && strlen(error.message) > 10));
    if (status != TY_OK || ty_cluster_device_count(q.cluster) > MOST_DEVICES ||
        ty_cluster_vertex_count(q.cluster) > MOST_VERTICES || q.workload->layer_count > MOST_LAYERS)
        goto done;
    status = ty_question_check(&point->question, &q, &error);
    MUST(status == TY_OK || (is_answer(status) && strlen(error.message) > 10));
    const ty_status checked = status;
    status = ty_question_plan(&point->question, &q, &watch, &plan, &error);
    MUST(status == TY_OK || (is_answer(status) && strlen(error.message) > 10));
    MUST((status == TY_OK) == (plan != NULL) && (checked == TY_OK || status == checked));
    if (plan != NULL)
        check_plan(plan, &q);
    else if (status == TY_EINFEASIBLE)
        MUST(ty_question_suggestion(&point->question, &q, &watch, &suggestion, &error) !=
             TY_EPARSE);
done:
    ty_suggestion_clear(&suggestion);
    ty_plan_free(plan);
    ty_question_inputs_clear(&q);
}

/* ---- Files ---------------------------------------------------------------------------------- */

static void ask_of_file(const char *text, size_t length)
{
    ty_question question = {
        .workload = workloads[length % 3], .cluster = clusters[length % CLUSTERS], .seed = 1};
    ty_vary_point point = {0};
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_json_document *document = NULL;
    ty_error error = {0};

    if (ty_json_parse(text, length, "input", &document, &error) != TY_OK)
        return;
    if (ty_json_has(ty_json_root(document), "layers")) {
        if (ty_workload_from_json(ty_json_root(document), &workload, &error) != TY_OK)
            goto done;
        question.given = &workload;
        question.profile_device = "p100-pcie-16gb";
        if (!ty_workload_has_times(workload))
            question.profile_device = NULL;
    } else {
        if (ty_cluster_parse(text, "input", &cluster, &error) != TY_OK)
            goto done;
        question.open_cluster = cluster;
    }
    MUST(ty_vary_point_new(&question, &point, &error) == TY_OK);
    ask(&point);
    ty_vary_point_clear(&point);
done:
    ty_workload_free(workload);
    ty_cluster_free(cluster);
    ty_json_free(document);
}

/* ---- Lines ---------------------------------------------------------------------------------- */

/* No files, not this host, and no number in the thousands. */
static bool is_asked(const char *text)
{
    size_t digits = 0;

    if (strchr(text, '/') != NULL || strstr(text, "local") != NULL)
        return false;
    for (; *text != '\0'; text++) {
        digits = isdigit((unsigned char)*text) ? digits + 1 : 0;
        if (digits > 3)
            return false;
    }
    return true;
}

static void read_line(char *line, ty_question *question)
{
    const struct {
        const char *key;
        const char **member;
    } texts[] = {{"fix", &question->fix},
                 {"input", &question->input},
                 {"precision", &question->precision},
                 {"system", &question->system},
                 {"objective", &question->objective},
                 {"stack", &question->stack},
                 {"profile-device", &question->profile_device}};
    char *value = strchr(line, ' ');

    if (value == NULL)
        return;
    *value++ = '\0';
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(line, texts[i].key) == 0)
            *texts[i].member = value;
    if (strcmp(line, "workload") == 0)
        question->workload = workloads[(unsigned char)*value % WORKLOADS];
    else if (strcmp(line, "cluster") == 0)
        question->cluster = clusters[(unsigned char)*value % CLUSTERS];
    else if (strcmp(line, "batch") == 0)
        question->global_batch = (uint32_t)strtoul(value, NULL, 10) % 4096;
    else if (strcmp(line, "lossy") == 0)
        question->allow_lossy = true;
    else if (strcmp(line, "fastest") == 0)
        question->is_fastest = true;
}

static void ask_in_lines(char *text)
{
    ty_question question = {.workload = workloads[0], .cluster = clusters[0], .seed = 1};
    const char *varied[TY_VARY_MOST_KEYS];
    uint32_t varied_count = 0;
    ty_vary_point point = {0};
    ty_error error = {0};
    char *rest = text, *line;
    ty_status status = TY_OK;

    while ((line = strtok_r(rest, "\n", &rest)) != NULL)
        if (strncmp(line, "vary ", 5) != 0)
            read_line(line, &question);
        else if (varied_count < TY_VARY_MOST_KEYS && strchr(line, '=') != NULL)
            varied[varied_count++] = line + 5;
    MUST(ty_vary_point_new(&question, &point, &error) == TY_OK);
    for (uint32_t i = 0; status == TY_OK && i < varied_count; i++) {
        char *key = ty_strdup(varied[i]), *value = strchr(key, '=');
        *value++ = '\0';
        status = ty_vary_set(&point, key, value, &error);
        MUST(status == TY_OK || (is_answer(status) && strlen(error.message) > 10));
        ty_free(key);
    }
    if (status == TY_OK)
        ask(&point);
    ty_vary_point_clear(&point);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char *text = ty_strndup((const char *)bytes, length);

    MUST(text != NULL);
    if (text[0] == '{')
        ask_of_file(text, strlen(text));
    else if (is_asked(text))
        ask_in_lines(text);
    ty_free(text);
    return 0;
}
