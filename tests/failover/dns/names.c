/* The resolver of the process that this is loaded into (LD_PRELOAD): the name NAME leads to what the file NAME_FILE says:
   after how many milliseconds, and the addresses in their order; without any the name is unknown. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    resolver *resolve = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *name = getenv("NAME"), *file = getenv("NAME_FILE");
    if (!node || !name || !file || strcmp(node, name)) return resolve(node, service, hints, found);
    FILE *says = fopen(file, "re");
    unsigned delay = 0;
    char address[64];
    int failed = EAI_NONAME;
    if (says && fscanf(says, "%u", &delay) == 1) {
        usleep(delay * 1000);
        while (fscanf(says, "%63s", address) == 1 && !(failed = resolve(address, service, hints, found)))
            while (*found) found = &(*found)->ai_next;
    }
    if (says) fclose(says);
    return failed;
}
