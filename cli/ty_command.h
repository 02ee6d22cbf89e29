/**
 * @file ty_command.h
 * All commands of Trainyard as one function, for programs in other languages. It takes the words of
 * the command line and returns the document that --json prints. libtrainyard.so exports only this
 * function; C programs use the other headers and their archives.
 *
 *     const char *words[] = {"plan", "--workload", "gpt2", "--cluster", "2x dgx-a100", "--json"};
 *     char *answer, *message;
 *     int code = ty_command(6, words, NULL, &answer, &message);
 *     puts(code == 0 ? answer : message);
 *     ty_command_free(answer);
 *     ty_command_free(message);
 *
 * docs/schemas describes the documents, and trainyard --help the words. The function prints nothing
 * and catches no signal. It reads the environment (TRAINYARD_DATA, TRAINYARD_WORKER) and the files
 * of defaults, as the program does. Simulations run in forked children. `run` and commands that
 * measure start trainyard-worker.
 */
#ifndef TY_COMMAND_H
#define TY_COMMAND_H

#include <stdbool.h>

/** Callbacks of the caller during a command. */
typedef struct ty_command_listener {
    /* Receives a line on progress, without its end; NULL: progress is not reported. */
    void (*note)(void *context, const char *line);
    /* Polled during long work. If it returns true, the command ends soon; NULL: never. */
    bool (*should_stop)(void *context);
    void *context;
} ty_command_listener;

/**
 * Runs `trainyard WORDS...`.
 * @param words    [count] the command and its arguments
 * @param listener NULL: none
 * @param answer   [out] text for standard output, maybe ""; free with ty_command_free; NULL when
 *                 memory ran out
 * @param message  [out] why it failed, else ""; free with ty_command_free
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
