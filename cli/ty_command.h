/**
 * @file ty_command.h
 * All of Trainyard behind one function, for programs in other languages: the words of the command
 * line go in, the document that --json prints comes out. It is what libtrainyard.so exports; the
 * archives behind the other headers are for C.
 *
 *     const char *words[] = {"plan", "--workload", "gpt2", "--cluster", "2x dgx-a100", "--json"};
 *     char *answer, *message;
 *     int code = ty_command(6, words, NULL, &answer, &message);
 *     puts(code == 0 ? answer : message);
 *     ty_command_free(answer);
 *     ty_command_free(message);
 *
 * The documents are those of docs/schemas, the words those of trainyard --help. Nothing is printed
 * and no signal is caught; environment (TRAINYARD_DATA, TRAINYARD_WORKER) and files of defaults are
 * the program's. Simulations run in children that are forked. `run` and whatever measures start
 * trainyard-worker.
 */
#ifndef TY_COMMAND_H
#define TY_COMMAND_H

#include <stdbool.h>

/** Who waits for a command. */
typedef struct ty_command_listener {
    /* A line, without its end, on what goes on; NULL: nobody reads. */
    void (*note)(void *context, const char *line);
    /* Polled while something long goes on, which ends soon after it says so; NULL: never. */
    bool (*should_stop)(void *context);
    void *context;
} ty_command_listener;

/**
 * Does what `trainyard WORDS...` does.
 * @param words    [count] the command and what follows it
 * @param listener NULL: nobody
 * @param answer   [out] what it would print on standard output, maybe ""; free with
 *                 ty_command_free; NULL when memory ran out
 * @param message  [out] why it failed, "" where it did not; free with ty_command_free
 * @return the exit code: 0 done, 1 failed, 2 usage, 3 bad input, 4 no feasible plan, 130 stopped.
 *         Calls from several threads wait for each other.
 */
__attribute__((visibility("default"))) int ty_command(int count, const char *const *words,
                                                      const ty_command_listener *listener,
                                                      char **answer, char **message);
__attribute__((visibility("default"))) void ty_command_free(char *text);
/** "0.1.0" */
__attribute__((visibility("default"))) const char *ty_command_version(void);

#endif
