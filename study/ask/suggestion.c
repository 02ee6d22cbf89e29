/* Suggests a change if a question has no plan: tries changes one after the other until the planner
 * finds a plan. */
#include "question.h"
#include "vary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Doublings of the devices to try: 2, 4, ... */
#define MOST_DOUBLINGS 8

typedef struct search {
    const ty_question *question;
    const ty_question_inputs *inputs;
    const ty_watch *watch;
    ty_suggestion *out;
    ty_error *error;
    bool is_found;
} search;

void ty_suggestion_clear(ty_suggestion *suggestion)
{
    ty_free(suggestion->words);
    ty_free(suggestion->cluster);
    ty_plan_free(suggestion->plan);
    *suggestion = (ty_suggestion){0};
}

/* Tries a question; if it has a plan, that is the suggestion.
 * @param words  description of the change
 * @param answer [out] TY_OK, TY_EINFEASIBLE or TY_EINVAL
 *               @return other failures */
static ty_status ask(search *s, const ty_vary_point *point, bool is_open, const char *words,
                     ty_status *answer)
{
    ty_question question = point->question;
    ty_question_inputs opened = {0};
    ty_plan *plan = NULL;
    ty_error detail = {0};
    ty_status status = TY_OK;

    question.top = 0; /* an estimate is enough */
    question.no_interval = true;
    question.given = NULL;
    if (!is_open)
        status = ty_question_open(&question, s->watch, &opened, &detail);
    if (status == TY_OK)
        status =
            ty_question_plan(&question, is_open ? s->inputs : &opened, s->watch, &plan, &detail);
    *answer = status;
    if (status == TY_OK) {
        *s->out = (ty_suggestion){
            .words = ty_strdup(words), .cluster = ty_strdup(question.cluster), .plan = plan};
        s->is_found = true;
        if (s->out->words == NULL || s->out->cluster == NULL)
            status = ty_fail(s->error, TY_ENOMEM, "out of memory");
    } else if (status == TY_ENOMEM || status == TY_EINTERRUPTED) {
        status = ty_fail(s->error, status, "%s", detail.message);
    } else {
        status = TY_OK; /* no suggestion */
    }
    ty_question_inputs_clear(&opened);
    return status;
}

/* ---- Without pins -------------------------------------------------------------------------- */

/* The question's pins; none if it has no text. */
static ty_status read_pins(const search *s, ty_pins *out)
{
    const char *fix = s->question->fix;

    *out = (ty_pins){0};
    return fix != NULL
               ? ty_pins_read(fix, ty_cluster_device_count(s->inputs->cluster), out, s->error)
               : TY_OK;
}

/* @param system false: drops the system too */
static ty_status ask_without(search *s, uint64_t left_out, bool has_system, ty_status *answer)
{
    ty_vary_point point = {.question = *s->question};
    ty_pins pins, dropped;
    ty_text rest = {0}, said = {0}, words = {0};
    ty_status status = TY_OK;

    TY_CHECK(read_pins(s, &pins), status, done);
    dropped = pins;
    for (uint32_t a = 0; a < TY_AXIS_COUNT; a++)
        ty_unpin((left_out >> a & 1) != 0 ? &pins : &dropped, (ty_axis)a);
    TY_CHECK(ty_pins_print(&pins, &rest, s->error), status, done);
    TY_CHECK(ty_pins_print(&dropped, &said, s->error), status, done);
    ty_text_add(&words, "without ");
    if (!has_system) {
        ty_text_addf(&words, "--system %s%s", point.question.system,
                     said.length > 0 ? " and " : "");
        point.question.system = NULL;
    }
    ty_text_addf(&words, "%s it fits", said.length > 0 ? said.data : "");
    TY_CHECK(ty_text_check(&words, s->error), status, done);
    point.question.fix = rest.length > 0 ? rest.data : NULL;
    status = ask(s, &point, s->question->given != NULL || s->question->stack != NULL, words.data,
                 answer);
done:
    ty_text_clear(&rest);
    ty_text_clear(&said);
    ty_text_clear(&words);
    return status;
}

/* Drops one pin at a time, then cumulatively. */
static ty_status give_up_pins(search *s)
{
    ty_pins pins;
    uint64_t left_out = 0;
    ty_axis axis;
    ty_status answer;

    TY_TRY(read_pins(s, &pins));
    for (uint32_t n = 0; (axis = ty_axis_to_open(n)) != TY_AXIS_COUNT && !s->is_found; n++)
        if (ty_is_pinned(&pins, (uint64_t)1 << axis))
            TY_TRY(ask_without(s, (uint64_t)1 << axis, true, &answer));
    for (uint32_t n = 0; (axis = ty_axis_to_open(n)) != TY_AXIS_COUNT && !s->is_found; n++) {
        const bool is_first = left_out == 0;
        left_out |= pins.axes & (uint64_t)1 << axis;
        if (ty_is_pinned(&pins, (uint64_t)1 << axis) && !is_first)
            TY_TRY(ask_without(s, left_out, true, &answer));
    }
    return TY_OK;
}

/* ---- Otherwise ----------------------------------------------------------------------------- */

static ty_status ask_batch_of(search *s, uint32_t batch, ty_status *answer)
{
    ty_vary_point point = {.question = *s->question};
    char words[64];

    point.question.global_batch = batch;
    snprintf(words, sizeof words, "with --global-batch %u it fits", batch);
    return ask(s, &point, true, words, answer);
}

/* The next batch that the devices divide, then halves. */
static ty_status ask_batch(search *s)
{
    const uint32_t devices = ty_cluster_device_count(s->inputs->cluster);
    uint32_t batch = s->question->global_batch > 0 ? s->question->global_batch
                                                   : s->inputs->workload->global_batch;
    ty_status answer = TY_EINFEASIBLE, status = TY_OK;

    if (batch % devices != 0 && batch < UINT32_MAX - devices)
        TY_TRY(ask_batch_of(s, (batch + devices - 1) / devices * devices, &answer));
    for (answer = TY_EINFEASIBLE, batch /= 2; batch > 0 && !s->is_found && answer != TY_EINVAL;
         batch /= 2)
        TY_TRY(ask_batch_of(s, batch, &answer));
    return status;
}

static double least_devices(const ty_question *question, const ty_question_inputs *inputs)
{
    double state_bytes, reserve = TY_USUAL_MEMORY_RESERVE;
    const ty_status status = ty_question_memory_reserve(question, &reserve, NULL);

    (void)status; /* checked before */
    return ty_least_devices(inputs->workload, inputs->cluster, inputs->stack, 0, reserve,
                            &state_bytes);
}

/* Doubles the hosts repeatedly, from the number at which parameters, gradients and optimizer states
 * fit. */
static ty_status ask_devices(search *s, bool keeps_pins)
{
    /* Hosts in a line, per leaf for a fabric; 0: not variable. */
    const char *word = strstr(s->question->cluster, "host:");
    unsigned long long hosts = word == NULL ? ty_cluster_host_count(s->inputs->cluster) : 0;
    const uint32_t devices = ty_cluster_device_count(s->inputs->cluster);
    const double least = least_devices(s->question, s->inputs) / devices;
    ty_status answer, status = TY_OK;

    if (word != NULL && sscanf(word, "host:%llu", &hosts) != 1)
        return TY_OK;
    for (uint32_t n = 1, factor = 2; n <= MOST_DOUBLINGS && hosts > 0 && !s->is_found;
         n++, factor *= 2) {
        ty_vary_point point = {0};
        ty_text words = {0};
        char value[32];
        ty_error refusal = {0};
        if (factor < least)
            continue;
        snprintf(value, sizeof value, "%llu", hosts * factor);
        TY_TRY(ty_vary_point_new(s->question, &point, s->error));
        if (!keeps_pins)
            point.question.fix = NULL;
        if (ty_vary_set(&point, "hosts", value, &refusal) != TY_OK) {
            ty_vary_point_clear(&point);
            break; /* a file, or ranks of this machine */
        }
        ty_text_addf(&words, "on %u devices (\"%s\")%s%s it fits", devices * factor,
                     point.question.cluster, keeps_pins ? "" : ", without ",
                     keeps_pins ? "" : s->question->fix);
        status = ty_text_check(&words, s->error);
        if (status == TY_OK)
            status = ask(s, &point, false, words.data, &answer);
        ty_text_clear(&words);
        ty_vary_point_clear(&point);
        TY_TRY(status);
        if (answer == TY_EINVAL || answer == TY_EPARSE)
            break; /* this number is invalid, and so are larger ones */
    }
    return status;
}

ty_status ty_question_suggestion(const ty_question *question, const ty_question_inputs *inputs,
                                 const ty_watch *watch, ty_suggestion *out, ty_error *error)
{
    ty_watch silent = watch != NULL ? *watch : (ty_watch){0}; /* notes are about the question */
    search s = {question, inputs, &silent, out, error, false};
    ty_deployment deployment;
    const bool has_room =
        least_devices(question, inputs) <= ty_cluster_device_count(inputs->cluster);
    ty_status answer, status = TY_OK;

    silent.note = NULL;
    *out = (ty_suggestion){0};
    if (ty_question_deploy(question, inputs, &deployment, NULL) != TY_OK)
        return TY_OK; /* the precision does not affect the model here */
    if (has_room) {
        TY_CHECK(give_up_pins(&s), status, done);
        if (!s.is_found && question->system != NULL)
            TY_CHECK(ask_without(&s, 0, false, &answer), status, done);
    }
    if (!s.is_found && inputs->workload->element_bytes > 2 && question->given == NULL) {
        ty_vary_point point = {.question = *question};
        point.question.precision = ty_precision_name(TY_PRECISION_BF16);
        TY_CHECK(ask(&s, &point, false, "with --precision bf16 it fits", &answer), status, done);
    }
    if (!s.is_found && has_room)
        TY_CHECK(ask_batch(&s), status, done);
    if (!s.is_found && question->given == NULL)
        TY_CHECK(ask_devices(&s, true), status, done);
    if (!s.is_found && question->given == NULL && question->fix != NULL)
        TY_CHECK(ask_devices(&s, false), status, done);
done:
    if (status != TY_OK)
        ty_suggestion_clear(out);
    return status;
}
