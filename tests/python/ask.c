/* The interface for programs in C. It reads queries from standard input, one line each of
 * "key=value" separated by tabs, and prints the step time of each plan, or the message why there is
 * none. */
#include "ty_study.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(key, member)                                                                          \
    {                                                                                              \
        key, offsetof(ty_question, member), 't'                                                    \
    }
#define COUNT(key, member)                                                                         \
    {                                                                                              \
        key, offsetof(ty_question, member), 'c'                                                    \
    }
#define FLAG(key, member)                                                                          \
    {                                                                                              \
        key, offsetof(ty_question, member), 'f'                                                    \
    }

/* The members by the names of their options. */
static const struct member {
    const char *key;
    size_t at;
    char kind;
} members[] = {
    TEXT("workload", workload),
    TEXT("cluster", cluster),
    TEXT("stack", stack),
    TEXT("fix", fix),
    TEXT("precision", precision),
    TEXT("optimizer", optimizer),
    TEXT("system", system),
    TEXT("objective", objective),
    TEXT("task", task),
    TEXT("input", input),
    TEXT("budget", budget),
    TEXT("profile", profile),
    COUNT("global_batch", global_batch),
    COUNT("top", top),
    FLAG("no_simulate", no_simulate),
    FLAG("allow_lossy", allow_lossy),
    FLAG("fastest", is_fastest),
};

static int put(ty_question *question, char *word)
{
    char *value = strchr(word, '=');
    size_t m = 0;

    if (value == NULL)
        return 0;
    *value++ = '\0';
    if (strcmp(word, "seq") == 0) {
        question->sequence = strtoull(value, NULL, 10);
        return 1;
    }
    while (m < sizeof members / sizeof members[0] && strcmp(members[m].key, word) != 0)
        m++;
    if (m == sizeof members / sizeof members[0])
        return 0;
    if (members[m].kind == 't')
        *(const char **)(void *)((char *)question + members[m].at) = value;
    else if (members[m].kind == 'c')
        *(uint32_t *)(void *)((char *)question + members[m].at) =
            (uint32_t)strtoul(value, NULL, 10);
    else
        *(bool *)(void *)((char *)question + members[m].at) = true;
    return 1;
}

int main(void)
{
    char line[2048];

    while (fgets(line, sizeof line, stdin) != NULL) {
        ty_question question = {0};
        ty_plan *plan = NULL;
        ty_error error = {0};
        for (char *word = strtok(line, "\t\n"); word != NULL; word = strtok(NULL, "\t\n"))
            if (!put(&question, word)) {
                fprintf(stderr, "ask: found '%s', expected an option of plan\n", word);
                return 2;
            }
        if (ty_question_answer(&question, NULL, &plan, &error) == TY_OK)
            printf("%.17g\n", ty_plan_summary(plan)->step_time_s);
        else
            printf("%s\n", error.message);
        ty_plan_free(plan);
    }
    return 0;
}
