/* Reading and atomic replacement of files, directories, the location of data, and the progress
 * line. */
#include "ty_base.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/trainyard-test-XXXXXX";
static char paths[4][128];

static void begin(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

/* Removes the files of a test, so that the folder can be removed. */
static void end(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(file, .init = begin, .fini = end);

static const char *in_folder(int slot, const char *name)
{
    snprintf(paths[slot], sizeof paths[slot], "%s/%s", folder, name);
    return paths[slot];
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2; /* . and .. */
}

static void expect_content(const char *path, const char *expected)
{
    char *bytes = NULL;
    size_t length = 0;
    ty_error error = {0};

    cr_assert_eq(ty_file_read(path, 0, &bytes, &length, &error), TY_OK, "%s", error.message);
    cr_expect_eq(length, strlen(expected), "%s", path);
    cr_expect_str_eq(bytes, expected, "%s", path);
    ty_free(bytes);
}

Test(file, is_written_replaced_and_read)
{
    const char *path = in_folder(0, "a.json"), *link = in_folder(1, "link.json");
    struct stat found;

    cr_assert_eq(ty_file_write(path, "one", 3, NULL), TY_OK);
    expect_content(path, "one");
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(symlink("a.json", link), 0);
    cr_assert_eq(ty_file_write(link, "second", 6, NULL), TY_OK);
    expect_content(path, "second");
    cr_assert_eq(lstat(link, &found), 0);
    cr_expect(S_ISLNK(found.st_mode), "the link is still one");
    cr_assert_eq(stat(path, &found), 0);
    cr_expect_eq(found.st_mode & 0777, 0640, "the mode is kept");
    cr_assert_eq(ty_file_write(path, "", 0, NULL), TY_OK);
    expect_content(path, "");
    cr_expect_eq(count_entries(folder), 2, "no temporary file stays");
}

Test(file, large_content_and_limit)
{
    const size_t length = 300000;
    char *bytes = ty_alloc(length, 1), *back = NULL;
    const char *path = in_folder(0, "large");
    size_t back_length = 0;
    ty_error error = {0};

    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(i * 31 % 251); /* NUL bytes too */
    cr_assert_eq(ty_file_write(path, bytes, length, NULL), TY_OK);
    cr_assert_eq(ty_file_read(path, length, &back, &back_length, &error), TY_OK);
    cr_assert_eq(back_length, length);
    cr_assert_eq(memcmp(bytes, back, length), 0);
    cr_assert_eq(back[length], '\0');
    ty_free(back);
    cr_assert_eq(ty_file_read(path, length - 1, &back, &back_length, &error), TY_EPARSE);
    cr_assert(strstr(error.message, "more than 299999 bytes") != NULL, "%s", error.message);
    ty_free(bytes);
}

Test(file, failures_name_the_path_and_leave_nothing)
{
    const char *kept = in_folder(0, "kept"), *missing = in_folder(1, "no/such"),
               *file_as_folder = in_folder(2, "kept/below");
    const struct rlimit limit = {4096, 4096};
    static char large[100000];
    char *bytes = NULL;
    size_t length = 0;
    ty_error error = {0};

    cr_assert_eq(ty_file_write(kept, "old", 3, NULL), TY_OK);
    cr_expect_eq(ty_file_write(missing, "x", 1, &error), TY_EIO);
    cr_expect(strstr(error.message, missing) != NULL, "%s", error.message);
    cr_expect_eq(ty_file_write(folder, "x", 1, &error), TY_EIO);
    cr_expect_eq(ty_file_write("/dev/full", "x", 1, &error), TY_EIO, "no room");
    cr_expect_eq(ty_file_read(missing, 0, &bytes, &length, &error), TY_EIO);
    cr_expect_eq(ty_file_read(folder, 0, &bytes, &length, &error), TY_EIO);
    cr_expect_eq(ty_directory_make(file_as_folder, &error), TY_EIO);
    cr_expect_eq(ty_directory_make(kept, &error), TY_EIO);

    signal(SIGXFSZ, SIG_IGN); /* the write then fails half-way, as on a full disk */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(ty_file_write(kept, large, sizeof large, &error), TY_EIO);
    expect_content(kept, "old");
    cr_expect_eq(count_entries(folder), 1, "no temporary file stays");
}

Test(file, allocation_failures)
{
    const char *path = in_folder(0, "a");
    char *bytes = NULL;
    size_t length = 0;
    ty_status status = TY_ENOMEM;

    for (long n = 1; status != TY_OK; n++) {
        ty_memory_fail_after(n);
        status = ty_file_write(path, "abc", 3, NULL);
        if (status == TY_OK)
            status = ty_file_read(path, 0, &bytes, &length, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld", n);
        cr_assert_lt(n, 100);
    }
    cr_expect_str_eq(bytes, "abc");
    cr_expect_eq(count_entries(folder), 1);
    ty_free(bytes);
}

Test(file, directories_with_parents)
{
    const char *deep = in_folder(0, "a/b//c/");

    cr_assert_eq(ty_directory_make(deep, NULL), TY_OK);
    cr_assert(ty_file_exists(in_folder(1, "a/b/c")));
    cr_assert_eq(ty_directory_make(deep, NULL), TY_OK, "again");
    cr_assert_eq(ty_directory_make("/", NULL), TY_OK);
    cr_assert_not(ty_file_exists(in_folder(1, "a/x")));
}

Test(file, data_is_found_in_order)
{
    ty_error error = {0};
    char *path = NULL;

    cr_assert_eq(ty_directory_make(in_folder(0, "workloads/zoo"), NULL), TY_OK);
    cr_assert_eq(ty_file_write(in_folder(1, "workloads/zoo/mine.json"), "{}", 2, NULL), TY_OK);
    setenv("TRAINYARD_DATA", folder, 1);
    cr_assert_eq(ty_data_path("workloads/zoo", "mine.json", &path, &error), TY_OK);
    cr_expect_str_eq(path, in_folder(1, "workloads/zoo/mine.json"));
    ty_free(path);
    cr_assert_eq(ty_data_path("workloads/zoo", NULL, &path, &error), TY_OK);
    cr_expect_str_eq(path, in_folder(0, "workloads/zoo"));
    ty_free(path);
    cr_assert_eq(ty_data_path("core", "ty_base.h", &path, &error), TY_OK, "in the sources: %s",
                 error.message);
    cr_expect(ty_file_exists(path));
    ty_free(path);
    path = NULL;
    cr_assert_eq(ty_data_path("workloads/zoo", "none.json", &path, &error), TY_EIO);
    cr_expect_null(path);
    cr_expect(strstr(error.message, "workloads/zoo/none.json") != NULL, "%s", error.message);
}

Test(file, progress_on_a_plain_stream)
{
    const char *path = in_folder(0, "progress.txt");
    FILE *stream = fopen(path, "w");
    ty_progress progress;
    char *bytes = NULL;
    size_t length = 0;

    ty_progress_start(&progress, stream, "training", 200, "steps");
    ty_progress_update(&progress, 10, "loss 0.5"); /* too soon for a line */
    progress.shown_s -= 11.0;
    progress.started_s -= 20.0;
    ty_progress_update(&progress, 100, "loss 0.4");
    ty_progress_finish(&progress, "200 steps");
    fclose(stream);
    cr_assert_eq(ty_file_read(path, 0, &bytes, &length, NULL), TY_OK);
    cr_expect_str_eq(bytes, "training: 100/200 steps, 20 s left, loss 0.4\n"
                            "training: 200 steps (20 s)\n");
    ty_free(bytes);

    ty_progress_start(&progress, NULL, "silent", 0, "");
    progress.shown_s -= 11.0;
    ty_progress_update(&progress, 1, NULL);
    ty_progress_finish(&progress, "done");
}
