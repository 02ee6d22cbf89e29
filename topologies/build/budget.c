/* Budgets of device classes, by name. */
#include "catalogue.h"
#include "ty_topologies.h"

#include <string.h>

enum { MOST_BUDGETS = 64, NAME_ROOM = 64 };

/* The budget named before the first comma. */
static ty_status find_named(const char *text, size_t length, ty_budget *out, ty_error *error)
{
    catalogue *known = NULL;
    const char *names[MOST_BUDGETS], *found = NULL, *near = NULL;
    uint32_t count = 0;
    char name[NAME_ROOM] = "";
    bool is_whole;
    ty_text all = {0};
    ty_status status = TY_OK;

    TY_TRY(catalogue_load(&known, error));
    for (; count < known->budget_count && count < MOST_BUDGETS; count++) {
        names[count] = known->budgets[count].name;
        ty_text_addf(&all, "%s%s", count > 0 ? ", " : "", names[count]);
    }
    if (length < sizeof name) {
        memcpy(name, text, length);
        found = ty_name_find(name, names, count, sizeof names[0], &is_whole);
        near = ty_suggest(name, names, count, sizeof names[0]);
    }
    for (uint32_t i = 0; i < count && found != NULL; i++)
        if (strcmp(names[i], found) == 0)
            *out = known->budgets[i];
    if (found == NULL)
        status =
            ty_fail(error, TY_EINVAL,
                    "--budget: found '%.40s', expected %s, or figures as in memory=100KB%s%s%s",
                    name, all.data != NULL ? all.data : "", near != NULL ? "; did you mean " : "",
                    near != NULL ? near : "", near != NULL ? "?" : "");
    ty_text_clear(&all);
    catalogue_free(known);
    return status;
}

ty_status ty_budget_open(const char *text, ty_budget *out, ty_error *error)
{
    const size_t length = strcspn(text, ",");
    ty_budget budget = {0};

    if (memchr(text, '=', length) == NULL) {
        TY_TRY(find_named(text, length, &budget, error));
        text += length + (text[length] == ',' ? 1 : 0);
    }
    if (*text != '\0' || budget.name[0] == '\0')
        TY_TRY(ty_budget_read(text, &budget, error));
    TY_TRY(ty_budget_check(&budget, error));
    *out = budget;
    return TY_OK;
}
