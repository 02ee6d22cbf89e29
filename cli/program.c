/* trainyard, the program. */
#include "cli.h"

#include <locale.h>

int main(int count, char **words)
{
    setlocale(LC_ALL, "C");
    return command_run(count > 0 ? count - 1 : 0, words + 1);
}
