/* libtrainyard.so: see ty_command.h. */
#include "cli.h"
#include "ty_command.h"

#include <locale.h>
#include <pthread.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static char *taken(ty_text *text)
{
    ty_error error;
    char *string = NULL;

    ty_text_add(text, "");
    return ty_text_take(text, &string, &error) == TY_OK ? string : NULL;
}

int ty_command(int count, const char *const *words, const ty_command_listener *listener,
               char **answer, char **message)
{
    ty_text said = {0}, why = {0};
    const cli_audience audience = {.answer = &said,
                                   .message = &why,
                                   .note = listener != NULL ? listener->note : NULL,
                                   .should_stop = listener != NULL ? listener->should_stop : NULL,
                                   .context = listener != NULL ? listener->context : NULL};
    char **copies = ty_alloc((size_t)count + 1, sizeof *copies); /* of the pointers only */
    const locale_t numbers = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int code = EXIT_FAILED;

    if (copies != NULL && numbers != (locale_t)0) {
        const locale_t before = uselocale(numbers);
        for (int i = 0; i < count; i++)
            copies[i] = (char *)words[i];
        pthread_mutex_lock(&one_at_a_time);
        audience_set(&audience);
        code = command_run(count, copies);
        audience_set(NULL);
        pthread_mutex_unlock(&one_at_a_time);
        uselocale(before);
    } else
        ty_text_add(&why, "out of memory");
    if (numbers != (locale_t)0)
        freelocale(numbers);
    ty_free(copies);
    *answer = taken(&said);
    *message = taken(&why);
    return code;
}

void ty_command_free(char *text)
{
    ty_free(text);
}

const char *ty_command_version(void)
{
    return TY_VERSION;
}
