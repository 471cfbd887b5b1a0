# What /bin/sh at the far host reads from its standard input: it starts the far side, with a program
# from here where that host has none. `install.rs` fills in what stands between @, and leaves out
# these lines and the indents. All of it is one command, so that the shell has read its last byte
# before it does anything; what is started reads on from there. It uses what POSIX has, and
# `head -c`. Its answers are records (`BOOT` in install.rs, then a line), its failures exit code 97.
{
    PATH=${PATH:+$PATH:}/usr/bin:/bin
    record() { printf '\000datapump-boot\000\n%s\n' "$1"; }
    system=$(uname -s -m)
    case $system in
        @PROGRAMS@
        *) digest= ;;
    esac
    user=$(id -u)
    cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    set -- "${DATAPUMP_DIR:+$DATAPUMP_DIR/datapump}" "${cache:+$cache/datapump}" \
        "${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/datapump}" \
        "/var/tmp/datapump-$user" "/tmp/datapump-$user"

    # A folder, or a program in it, that nobody else can have put there or can change.
    private() {
        [ ! -L "$1" ] && [ -O "$1" ] && case $(ls -ld "$1") in
            ?????-??-*) ;;
            *) false ;;
        esac
    }
    # An answer, as a shell takes an empty file for a script that succeeds.
    fits() {
        why=$("$1" @PART@ "--installed=$digest" @ASK@ </dev/null 2>&1)
        status=$?
        [ "$why" = fits ]
    }

    # An earlier copy has brought the program.
    if [ -n "$digest" ]; then
        for folder do
            file=$folder/$name
            [ -n "$folder" ] && [ -f "$file" ] && private "$folder" && private "$file" &&
                fits "$file" && exec "$file" @WORDS@
        done
    fi

    # The host has a program of its own.
    there=none
    if @IN_PATH@ && command -v datapump >/dev/null; then
        there=other
        [ "$(datapump @PART@ @ASK@ </dev/null 2>/dev/null)" = fits ] && exec datapump @WORDS@
    fi
    [ -n "$digest" ] || { record "system $there $system"; exit 97; }

    # Nobody else may read or write what is made here; the far side's own files are its business.
    mask=$(umask)
    umask 077

    # A folder in which a program can be put and run.
    usable() {
        [ ! -L "$1" ] || { echo 'it is a symbolic link'; return 1; }
        [ -d "$1" ] || mkdir -p "$1" || return 1
        private "$1" || { echo 'others own it, or can write to it'; return 1; }
        printf '#!/bin/sh\nexit 0\n' >"$new" && chmod 700 "$new" || return 1
        "$new" 2>/dev/null || { echo 'no program runs from there (mounted noexec?)'; return 1; }
    }
    unpack() {
        case $codec in
            zstd) zstd -dcq ;;
            gzip) gzip -dc ;;
            *) cat ;;
        esac
    }
    # Takes all that was announced, also where it cannot be written.
    receive() {
        head -c "$count" | { unpack 2>&1 >"$new"; failed=$?; cat >/dev/null; exit $failed; }
    }
    codec=plain
    for tool in gzip zstd; do
        [ "$(echo x | $tool -c 2>/dev/null | $tool -dc 2>/dev/null)" = x ] && codec=$tool
    done
    for folder do
        [ -n "$folder" ] || continue
        new=$folder/.new-@TOKEN@
        if why=$(usable "$folder" 2>&1); then
            record "send $there ${system#* } $codec $folder"
            read -r count || exit 97
            if why=$(receive 2>&1) && why=$(chmod 700 "$new" 2>&1); then
                if fits "$new"; then
                    why=$(mv -f "$new" "$folder/$name" 2>&1) && umask "$mask" &&
                        exec "$folder/$name" @WORDS@
                else
                    rm -f "$new"
                    record "unfit $status $why"
                    exit 97
                fi
            fi
        fi
        rm -f "$new" 2>/dev/null
        record "tried $folder	$why"
    done
    record "none $there"
    exit 97
