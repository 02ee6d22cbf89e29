/* Importing Hugging Face configurations. */
#include "import_fuzz.h"
