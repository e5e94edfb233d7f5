# On the machine of the first cache. $1 is the program, $2 the cluster file.
exec "$1" cache c1 --config "$2"
