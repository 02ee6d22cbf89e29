/* Fits constants of a stack to published step times, and scores fitted and other rows.
 *
 *     fit_stack [--rows N] [--gpu G] [--leave device] STACK CONSTANTS FILE...
 *       CONSTANTS: "product_share,memory_share,..." of ty_stack.h; "" scores without fitting;
 *         "choose" takes those that lower the left-out error, as `calibrate` does
 *       --rows N: fits to N rows, spread evenly over the predictable rows of each FILE, as if they
 *         were the user's own
 *       --gpu G: only rows whose device has this name or begins with it
 *       --leave device: leaves out each device instead of each model. A stack's constants for
 *         single devices stay those of the catalogue: a device that is left out has no others
 *
 * Rows are those of FILEs whose framework is STACK (study/catalogue/published.json), never of
 * another stack. Models in the stack's "fitted" are fitted; all others are only scored. For each
 * fitted model, the program prints its error when it is left out. */
#include "fit.h"
#include "ty_base.h"
#include "validate/row_question.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORST = 4 };
#define PRIOR_WEIGHT 0.002 /* of a constant at one deviation; the stacks were fitted with it */

typedef struct selection {
    ty_fit *fit;
    const ty_json *names;
    const ty_stack *stack;
    const char *name; /* of the stack, on the command line */
    uint32_t rows;    /* 0: rows of the models in the stack's "fitted" */
    const char *gpu;
    bool leaves_devices;
} selection;

/* @return whether the record is a question for the stack */
static bool ask(const selection *s, const ty_record *record, ty_row_question *out)
{
    char reason[TY_SKIP_REASON_SIZE] = "";

    if (strcmp(record->kind, "training-speed") != 0 ||
        strncmp(record->gpu, s->gpu, strlen(s->gpu)) != 0)
        return false;
    ty_ask_language_model(s->names, record, out, reason);
    return reason[0] == '\0' && strcmp(out->stack, s->stack->name) == 0;
}

/* @param is_added [out] false: not predictable, which is printed */
static ty_status add_row(const selection *s, ty_fit *fit, const ty_record *record, bool is_judge,
                         bool *is_added, ty_error *error)
{
    ty_row_question asked;
    ty_question question;
    ty_status status;

    *is_added = ask(s, record, &asked);
    if (!*is_added)
        return TY_OK;
    question = (ty_question){.workload = asked.workload,
                             .cluster = asked.cluster,
                             .stack = s->name,
                             .precision = asked.precision,
                             .fix = asked.fix,
                             .global_batch = asked.global_batch,
                             .seed = 1};
    status = ty_fit_add_step(fit, &question,
                             &(ty_measurement){.name = record->id,
                                               .group = s->rows > 0         ? NULL
                                                        : s->leaves_devices ? record->gpu
                                                                            : record->model,
                                               .seconds = asked.measured_step_s,
                                               .is_judge = is_judge},
                             error);
    *is_added = status == TY_OK;
    if (status == TY_OK || status == TY_ENOMEM)
        return status;
    fprintf(stderr, "%s: %s\n", record->id, error->message);
    return TY_OK;
}

static bool is_of_stack(const selection *s, const ty_record *record)
{
    char source[64];

    snprintf(source, sizeof source, "%.*s", (int)strcspn(record->id, "/"), record->id);
    for (char *c = source; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    return ty_stack_is_fitted(s->stack, source, record->model);
}

static ty_status read_file(const selection *s, const char *path, ty_error *error)
{
    ty_records *records = NULL;
    ty_fit *all = NULL; /* to find rows that can be predicted */
    bool *is_there = NULL, is_added;
    uint32_t count = 0, met = 0, chosen = 0;
    ty_status status = TY_OK;

    TY_CHECK(ty_records_load(path, &records, error), status, done);
    if (s->rows == 0) {
        for (uint32_t i = 0; status == TY_OK && i < records->count; i++)
            status = add_row(s, s->fit, &records->items[i], !is_of_stack(s, &records->items[i]),
                             &is_added, error);
        goto done;
    }
    is_there = ty_alloc(records->count + 1, sizeof *is_there);
    TY_CHECK(ty_fit_new(s->stack, &all, error), status, done);
    for (uint32_t i = 0; status == TY_OK && is_there != NULL && i < records->count; i++) {
        status = add_row(s, all, &records->items[i], true, &is_there[i], error);
        count += is_there[i];
    }
    for (uint32_t i = 0; status == TY_OK && is_there != NULL && i < records->count; i++) {
        bool is_chosen;
        if (!is_there[i])
            continue;
        is_chosen = chosen < s->rows && (2 * met + 1) * s->rows >= count * (2 * chosen + 1);
        chosen += is_chosen;
        met++;
        status = add_row(s, s->fit, &records->items[i], !is_chosen, &is_added, error);
    }
done:
    ty_fit_free(all);
    ty_free(is_there);
    ty_records_free(records);
    return status;
}

static void print_score(const char *what, const ty_fit_score *score)
{
    if (score->rows > 0)
        printf("%-28s %4u rows: mean error %5.2f %%, signed %+6.2f %%, median %5.2f %%, p90 %5.2f "
               "%%\n",
               what, score->rows, 100 * score->mean, 100 * score->signed_mean, 100 * score->median,
               100 * score->p90);
}

/* Prints the rows with the largest errors that were only scored. */
static void print_worst(const ty_fit_row *rows, uint32_t count)
{
    double below = HUGE_VAL;

    for (int place = 0; place < WORST; place++) {
        double worst = -1;
        uint32_t row = 0;
        for (uint32_t i = 0; i < count; i++) {
            const double error = fabs(rows[i].after_s / rows[i].measured_s - 1);
            if (rows[i].is_judge && error < below && error > worst) {
                worst = error;
                row = i;
            }
        }
        if (worst < 0)
            return;
        printf("worst   %s %+.1f %%\n", rows[row].name,
               100 * (rows[row].after_s / rows[row].measured_s - 1));
        below = worst;
    }
}

static ty_status print_scores(const ty_fit *fit, bool is_by_model, ty_error *error)
{
    static const struct {
        const char *name;
        ty_fit_stage stage;
        bool is_judge;
    } lines[] = {{"fitted before", TY_FIT_BEFORE, false},
                 {"fitted", TY_FIT_AFTER, false},
                 {"fitted, each left out", TY_FIT_LEFT_OUT, false},
                 {"others before", TY_FIT_BEFORE, true},
                 {"others", TY_FIT_AFTER, true}};
    uint32_t count;
    const ty_fit_row *rows = ty_fit_rows(fit, &count);
    ty_fit_score score;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        TY_TRY(ty_fit_score_of(fit, lines[i].stage, lines[i].is_judge, NULL, &score, error));
        print_score(lines[i].name, &score);
    }
    print_worst(rows, count);
    for (uint32_t i = 0; is_by_model && i < count; i++) {
        uint32_t first = 0;
        while (rows[first].is_judge || strcmp(rows[first].group, rows[i].group) != 0)
            if (++first >= i)
                break;
        if (rows[i].is_judge || first < i)
            continue;
        TY_TRY(ty_fit_score_of(fit, TY_FIT_LEFT_OUT, false, rows[i].group, &score, error));
        if (score.rows > 0) {
            printf("without ");
            print_score(rows[i].group, &score);
        }
    }
    return TY_OK;
}

/* "a,b" @param names [out] into `text`, NULL at the end */
static ty_status split(char *text, const char *names[TY_FIT_MOST_CONSTANTS + 1], ty_error *error)
{
    uint32_t count = 0;
    char *rest = NULL;

    for (char *name = strtok_r(text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (count == TY_FIT_MOST_CONSTANTS)
            return ty_fail(error, TY_EINVAL, "expected at most %d constants",
                           TY_FIT_MOST_CONSTANTS);
        names[count++] = name;
    }
    names[count] = NULL;
    return TY_OK;
}

int main(int count, char **arguments)
{
    const char *names[TY_FIT_MOST_CONSTANTS + 1] = {NULL};
    ty_error error = {0};
    ty_status status = TY_OK;
    ty_stack *stack = NULL;
    ty_json_document *names_of_records = NULL;
    selection s = {0};
    const ty_fit_constant *constants;
    uint32_t constant_count;
    uint64_t rows = 0;
    const char *gpu = "";
    bool is_chosen, leaves_devices = false;
    uint32_t of_devices;

    for (; count > 2 && strncmp(arguments[1], "--", 2) == 0; arguments += 2, count -= 2) {
        if (strcmp(arguments[1], "--gpu") == 0)
            gpu = arguments[2];
        else if (strcmp(arguments[1], "--leave") == 0 && strcmp(arguments[2], "device") == 0)
            leaves_devices = true;
        else if (strcmp(arguments[1], "--rows") != 0 ||
                 ty_parse_uint(arguments[2], 1, 1000, &rows, &error) != TY_OK)
            break;
    }
    if (count < 4 || strncmp(arguments[1], "--", 2) == 0) {
        fprintf(
            stderr,
            "usage: fit_stack [--rows N] [--gpu G] [--leave device] STACK CONSTANT,... FILE...\n");
        return 2;
    }
    is_chosen = strcmp(arguments[2], "choose") == 0;
    TY_CHECK(ty_stack_open(arguments[1], &stack, &error), status, cleanup);
    TY_CHECK(ty_names_open(&names_of_records, &error), status, cleanup);
    s = (selection){.names = ty_json_root(names_of_records),
                    .stack = stack,
                    .name = arguments[1],
                    .rows = (uint32_t)rows,
                    .gpu = gpu,
                    .leaves_devices = leaves_devices};
    of_devices = stack->on_count;
    stack->on_count = leaves_devices ? 0 : of_devices;
    status = ty_fit_new(stack, &s.fit, &error);
    stack->on_count = of_devices;
    TY_CHECK(status, status, cleanup);
    if (s.rows == 0)
        ty_fit_set_prior(s.fit, PRIOR_WEIGHT);
    for (int i = 3; i < count; i++)
        TY_CHECK(read_file(&s, arguments[i], &error), status, cleanup);
    if (is_chosen) {
        TY_CHECK(ty_fit_choose(s.fit, ty_fit_step_constants, NULL, &error), status, cleanup);
    } else {
        TY_CHECK(split(arguments[2], names, &error), status, cleanup);
        TY_CHECK(ty_fit_solve(s.fit, names, &error), status, cleanup);
        if (names[0] != NULL)
            TY_CHECK(ty_fit_leave_out(s.fit, &error), status, cleanup);
    }
    constants = ty_fit_constants(s.fit, &constant_count);
    for (uint32_t c = 0; c < constant_count; c++) {
        if (constants[c].is_fitted)
            printf("\"%s\": %.4g,\n", constants[c].name, constants[c].after);
        else
            fprintf(stderr, "%s left alone: %s\n", constants[c].name, constants[c].reason);
    }
    status = print_scores(s.fit, s.rows == 0 && constant_count > 0, &error);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "fit_stack: %s\n", error.message);
    ty_fit_free(s.fit);
    ty_stack_free(stack);
    ty_json_free(names_of_records);
    return status == TY_OK ? 0 : 1;
}
